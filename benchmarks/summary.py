"""The sentences of README.md that hold figures, made from the committed rows: ``python benchmarks/summary.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN"}


def sentences() -> list[str]:
    """One sentence for each way of running a layer on the CPU."""
    rows: list[dict[str, Any]] = [
        row for path in sorted(RESULTS.glob("cpu/*.json")) for row in json.loads(path.read_text())
    ]
    assert all(row["checked"] for row in rows)
    return [
        _sentence("Streaming, one step a call", [row for row in rows if row["steps"] == 1]),
        _sentence("A sequence of 100 steps", [row for row in rows if row["steps"] > 1 and row["pass"] == "forward"]),
        _sentence("Training on 100 steps", [row for row in rows if row["pass"] == "training"]),
    ]


def _sentence(what: str, rows: list[dict[str, Any]]) -> str:
    parts = []
    for cell, name in CELLS.items():
        ratios = [row["ratio"] for row in rows if row["cell"] == cell]
        parts.append(f"{name} {min(ratios):.2f} to {max(ratios):.1f}")
    ahead = sum(row["ratio"] >= 1 for row in rows)
    return f"{what}: ahead in {ahead} of {len(rows)} rows ({', '.join(parts)} times)."


if __name__ == "__main__":
    print("\n".join(sentences()))
