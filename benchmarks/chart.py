"""Draws the charts of the documents from the committed rows: ``python benchmarks/chart.py``.

Reads results/DEVICE/*.json, writes docs/charts/DEVICE/SUITE-THREADS-ratio.png and -step.png.
"""

from __future__ import annotations

from pathlib import Path

from prnn.bench.draw import draw
from prnn.bench.rows import load

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Draw every device that has results."""
    for device in sorted(path for path in (ROOT / "results").glob("*") if path.is_dir()):
        folder = ROOT / "docs" / "charts" / device.name
        folder.mkdir(parents=True, exist_ok=True)
        for path in draw(load(sorted(device.glob("*.json"))), folder):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
