"""Rows as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from prnn.bench.rows import Row


def table(rows: Sequence[Row]) -> str:
    """One line a row: times in microseconds a timestep, the best peer's time over ours, and whether the result was right."""
    peers = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    heads = ["cell", "pass", "H", "B", "T", "threads", "prnn us", "least", "most", "floor", "set by", *peers, "ratio"]
    lines = [[*heads, "error", "checked"]]
    for row in rows:
        least, most = row["ours_spread"] or (None, None)
        lines.append(
            [
                row["cell"],
                row["pass"],
                *(str(size) for size in (row["hidden"], row["batch"], row["steps"], row["threads"])),
                *(microseconds(value) for value in (row["ours_us"], least, most, row["floor_us"])),
                row["floor_by"],
                *(microseconds(row["peers"].get(name)) for name in peers),
                "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
                "-" if row["max_error"] is None else f"{row['max_error']:.0e}",
                "yes" if row["checked"] else "NO",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)


def microseconds(value: float | None) -> str:
    """Three digits or more; a dash for none."""
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"
