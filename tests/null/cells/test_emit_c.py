"""The emitted C++ text: kept for two cells, so that a change shows in review, and read by a compiler for all."""

import subprocess
from pathlib import Path

import pytest

from prnn.cells import BUILTIN
from prnn.cells.emit_c import emit_cell

GOLDEN = Path(__file__).parents[1] / "golden"

PRELUDE = """
#include <cmath>
#define PRNN_CELL inline
using std::exp; using std::log; using std::sqrt; using std::tanh;
inline double sigmoid(double a) { return 1 / (1 + exp(-a)); }
inline double relu(double a) { return a <= 0 ? 0 : a; }
inline double maximum(double a, double b) { return a > b ? a : b; }
inline double greater(double a, double b) { return a > b; }
"""


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_text_is_the_golden_text(name):
    assert emit_cell(BUILTIN[name]) == (GOLDEN / f"{name}.h").read_text(), (
        f"if the change is meant: python -c 'from prnn.cells import *; from prnn.cells.emit_c import emit_cell; "
        f'print(emit_cell({name}), end="")\' > tests/null/golden/{name}.h'
    )


def test_a_compiler_accepts_every_cell(tmp_path):
    lines = [PRELUDE]
    for name, each in BUILTIN.items():
        lines.append(emit_cell(each, name))
        arguments = ", ".join(["nullptr"] * 6)
        stages = range(each.program.num_stages)
        lines += [f"auto use_{name}_{k} = [] {{ {name}::forward_{k}<double>({arguments}); }};" for k in stages]
    source = tmp_path / "cells.cpp"
    source.write_text("\n".join(lines))
    command = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_infinite_constants_are_spelled_for_cpp():
    from prnn.cells import cell, maximum

    @cell(states=["h"], gates=["n"])
    def bounded(n):
        return maximum(n, float("-inf"))

    assert "-inf" not in emit_cell(bounded)
