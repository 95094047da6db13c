"""Rows: what one measurement says, in one schema for every suite, and the files that hold them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from prnn.bench.workload import Workload
from prnn.errors import PrnnError

# Written as a call because of the key "pass".
_Row = TypedDict(
    "_Row",
    {
        "suite": str,
        "device": str,
        "versions": dict[str, str],
        "commit": str,  # of the code measured, or the version of a package that lies in no work tree
        "date": str,
        "cell": str,
        "dtype": str,
        "math": str,  # how float32 products are computed
        "pass": str,
        "hidden": int,
        "input": int,
        "layers": int,
        "directions": int,
        "projection": int,
        "heads": int,
        "batch": int,
        "steps": int,
        "threads": int,
        "family": str,
        "plan": str,
        "ours_us": float | None,  # median microseconds a timestep of the whole call; None: this library failed
        "ours_spread": list[float] | None,  # least and largest over the rounds
        "floor_us": float,
        "floor_by": str,
        "peers": dict[str, float],  # medians; a peer that cannot do the row is absent
        "best_peer": str | None,
        "ratio": float | None,  # the best peer's time over ours
        "max_error": float | None,  # of any output against float64, over that output's largest value
        "checked": bool,  # every output was within the tolerance of docs/numerics.md in this very run
    },
)
KEYS = frozenset(_Row.__annotations__)


class Row(_Row, total=False):
    """A row; these keys may be absent."""

    network: str  # whose sizes these are
    refused: dict[str, str]  # peer -> why it is not among `peers`


OPTIONAL_KEYS = frozenset(Row.__annotations__) - KEYS


def workload_of(row: Row) -> Workload:
    """What the row measured."""
    return Workload(row["cell"], row["pass"], row["hidden"], row["batch"], row["steps"], row["input"], row["threads"])


def save(rows: Sequence[Row], path: Path) -> None:
    """Write a file of rows, one a line; a reader never sees half of it."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    partial.replace(path)


def load(paths: Iterable[Path]) -> list[Row]:
    """The rows of several files.

    Raises:
        PrnnError: a file cannot be read, or a row has other keys than the schema.
    """
    rows: list[Row] = []
    for path in paths:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PrnnError(f"cannot read rows from {path}: {error}") from error
        for number, row in enumerate(found if isinstance(found, list) else [found]):
            different = sorted(KEYS ^ (row.keys() - OPTIONAL_KEYS if isinstance(row, dict) else set()))
            if different:
                raise PrnnError(f"row {number} of {path} has missing or unknown keys: {', '.join(map(str, different))}")
            rows.append(row)
    return rows
