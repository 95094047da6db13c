"""docs/numerics.md's promise for the engine's own functions: float32 within 4 ulp over all inputs, float64 within 1e-14."""

import subprocess
from pathlib import Path

import pytest

from prnn import engine
from prnn.runtime.cpu.compiler import FLAGS, ISA_FLAGS, find_compiler

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src/prnn/kernels/cpu"


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("isa", engine.available().isas[:1])
def test_functions_are_as_accurate_as_promised(isa, tmp_path):
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    program = tmp_path / "accuracy"
    command = [find_compiler(), *flags, *ISA_FLAGS[isa], f"-I{SOURCES}", HERE / "accuracy.cpp", "-o", program]
    subprocess.run(command, check=True)
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")
    worst = {(name, dtype): float(error) for name, dtype, error in map(str.split, filter(None, lines))}
    assert len(worst) == 6
    for (name, dtype), error in worst.items():
        assert error <= (4 if dtype == "float32" else 1e-14), (name, dtype, error)
