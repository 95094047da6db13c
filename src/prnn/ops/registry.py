"""Cells as strings: an operator's arguments are tensors, numbers and strings, so a cell reaches it by its key."""

from __future__ import annotations

from functools import lru_cache

from prnn.cells import BUILTIN, Cell, find
from prnn.errors import CellError

_builtin_names = {each.digest: name for name, each in BUILTIN.items()}
_cells: dict[str, Cell] = dict(BUILTIN)


@lru_cache(maxsize=None)
def key_of(cell: Cell) -> str:
    """The string that stands for `cell`: a built-in's name, or its import path and digest."""
    key = _builtin_names.get(cell.digest) or f"{cell.path}#{cell.digest}"
    _cells.setdefault(key, cell)
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
            raise CellError(f"the cell at {path!r} has changed since {key!r} was recorded (its digest is {found.digest})")
        _cells[key] = found
    return found
