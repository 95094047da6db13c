"""Cells as strings: an operator's arguments are tensors, numbers and strings, so a cell reaches it by its key."""

from __future__ import annotations

from prnn.cells import BUILTIN, Cell, find
from prnn.errors import CellError

_keys = {each.digest: name for name, each in BUILTIN.items()}
_cells: dict[str, Cell] = dict(BUILTIN)


def key_of(cell: Cell) -> str:
    """The string that stands for `cell`: a built-in's name, or its import path and digest."""
    key = _keys.get(cell.digest)
    if key is None:
        key = _keys[cell.digest] = f"{cell.path}#{cell.digest}"
        _cells[key] = cell
    return key


def cell_of(key: str) -> Cell:
    """The cell that `key` stands for; imports it if this process has not met it (an exported program does not hold its cells).

    Raises:
        CellError: there is none, or it is not the cell that the key was made for.
    """
    found = _cells.get(key)
    if found is None:
        path, _, digest = key.partition("#")
        found = find(path)
        if found.digest != digest:
            raise CellError(
                f"the cell at {path!r} has changed since {key!r} was recorded (its digest is {found.digest})"
            )
        _cells[key] = found
    return found
