"""The emitted C++ text: kept for two cells, so that a change shows in review."""

from pathlib import Path

import pytest

from prnn.cells import BUILTIN, cell, maximum
from prnn.cells.emit_c import emit_cell

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_text_is_the_golden_text(name):
    assert emit_cell(BUILTIN[name]) == (GOLDEN / f"{name}.h").read_text(), (
        f"if the change is meant: python -c 'from prnn.cells import *; from prnn.cells.emit_c import emit_cell; "
        f'print(emit_cell({name}), end="")\' > tests/null/golden/{name}.h'
    )


def test_infinite_constants_are_spelled_for_cpp():
    @cell(states=["h"], gates=["n"])
    def bounded(n):
        return maximum(n, float("-inf"))

    assert "V(-1.0 / 0.0)" in emit_cell(bounded)
