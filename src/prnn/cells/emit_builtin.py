"""Print all built-in cells for the native engine: ``python -m prnn.cells.emit_builtin FILE`` (the build calls it)."""

from __future__ import annotations

import sys
from pathlib import Path

from prnn.cells import BUILTIN
from prnn.cells.emit_c import emit_cell


def emit_builtin() -> str:
    """The structs of all built-in cells and ``builtin_cells``, the table of them."""
    structs = [emit_cell(cell, f"Cell_{name}") for name, cell in BUILTIN.items()]
    tables = [f"static const PrnnCell table_{name} = make_cell<Cell_{name}>();" for name in BUILTIN]
    entries = "".join(f"&table_{name}, " for name in BUILTIN)
    return "\n".join([*structs, *tables, f"static const PrnnCell* const builtin_cells[] = {{{entries}nullptr}};", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(emit_builtin(), encoding="utf-8")
