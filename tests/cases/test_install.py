"""What an installation meets (49): no compiler, a toolkit of another version, folders that cannot be written, builds at once."""

import os
import shutil
import subprocess
import sys

import pytest

import prnn
from cases import faults
from cases.common import ROOT, python

BUILT_IN = """
import numpy as np
import prnn

rng = np.random.default_rng(0)
weights = prnn.LayerWeights(*(rng.standard_normal((20, n)) for n in (3, 5)))
x = rng.standard_normal((6, 2, 3))
y, _ = prnn.run(prnn.cells.lstm, x, weights)
from prnn import reference
wanted, _ = reference.layer(prnn.cells.lstm, x, weights, [np.zeros((2, 5))] * 2)
assert np.abs(y - wanted).max() < 1e-12
"""

# a cell that is not built in: tanh of half of what the gate gives
USERS = """
from prnn.cells import tanh

@prnn.cell(states=["h"], gates=["n"])
def half(n):
    return tanh(0.5 * n)

own = prnn.LayerWeights(*(rng.standard_normal((5, n)) for n in (3, 5)))
y, _ = prnn.run(half, x, own)
wanted, _ = reference.layer(half, x, own, [np.zeros((2, 5))])
assert np.abs(y - wanted).max() < 1e-12
"""

CATCH_WARNINGS = """
import warnings
warnings.simplefilter("default")
caught = []
warnings.showwarning = lambda message, category, *rest: caught.append((category.__name__, str(message)))
"""


def test_without_a_compiler_built_in_cells_run_natively_and_others_interpreted(tmp_path):
    says_once = 'print(*sorted(caught), sep="\\n")\nprnn.run(half, x[:1], own)\nassert len(caught) == 1, caught'
    text = python(CATCH_WARNINGS + BUILT_IN + "assert caught == [], caught\n" + USERS + says_once, PATH=str(tmp_path))
    assert "PrnnFallbackWarning" in text and "no C++ compiler" in text and "half runs interpreted" in text


@pytest.mark.parametrize("home", ["missing", "of another version"])
def test_a_cuda_toolkit_is_not_asked_for_on_the_cpu(home, tmp_path):
    if home != "missing":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvcc").write_text("#!/bin/sh\necho release 7.0\nexit 1\n")
        (tmp_path / "bin" / "nvcc").chmod(0o755)
        (tmp_path / "version.txt").write_text("CUDA Version 7.0.28\n")
    folder = str(tmp_path if home != "missing" else tmp_path / "nothing")
    python(BUILT_IN, CUDA_HOME=folder, CUDA_PATH=folder, PATH=f"{folder}/bin{os.pathsep}{os.environ['PATH']}")


def test_a_cache_folder_that_cannot_be_written_costs_a_build_and_a_warning(tmp_path):
    """A file stands where the folder should be: that stops root as well."""
    (tmp_path / "file").write_text("")
    end = 'print(*sorted(caught), sep="\\n")'
    for variables in ({"PRNN_CACHE_DIR": str(tmp_path / "file")}, {"HOME": str(tmp_path / "file")}):
        changes = {"PRNN_CACHE_DIR": None, "XDG_CACHE_HOME": None, **variables}
        text = python(CATCH_WARNINGS + BUILT_IN + USERS + end, TMPDIR=str(tmp_path), **changes)
        assert text.count("PrnnFallbackWarning") == 1 and "PRNN_CACHE_DIR" in text and "interpreted" not in text
    assert os.listdir(tmp_path) == ["file"]  # what was built instead went with its process


AT_ONCE = """
import os
from prnn.runtime.cpu import compiler

start, build = __import__("sys").argv[1], compiler._build

def build_together(*arguments):
    open(f"{start}/{os.getpid()}", "w").close()
    while len(os.listdir(start)) < 2:
        pass
    build(*arguments)

compiler._build = build_together
"""


def test_two_processes_build_the_same_cell_at_once(tmp_path):
    cache, start = tmp_path / "cache", tmp_path / "start"
    start.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path]),
        "PRNN_CACHE_DIR": str(cache),
    }
    command = [sys.executable, "-c", faults.prelude() + BUILT_IN + AT_ONCE + USERS, str(start)]
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [each.communicate(timeout=60)[1] for each in running]
    assert [each.returncode for each in running] == [0, 0], errors
    (entry,) = (cache / "cells").iterdir()  # one entry, and nothing unfinished beside it
    assert sorted(os.listdir(entry)) == ["cell.cpp", "cell.so"]


@pytest.mark.parametrize("damage", ["empty", "text", "missing"])
def test_a_damaged_cache_entry_is_built_again(damage, tmp_path):
    python(BUILT_IN + USERS, PRNN_CACHE_DIR=str(tmp_path))
    (built,) = tmp_path.glob("cells/*/cell.so")
    size = built.stat().st_size
    built.unlink()
    if damage != "missing":
        built.write_text("" if damage == "empty" else "not a library")
    python(BUILT_IN + USERS, PRNN_CACHE_DIR=str(tmp_path))
    assert built.stat().st_size == size


def test_paths_with_spaces_and_letters_of_all_kinds(tmp_path):
    home = tmp_path / "my künstliche $HOME"
    shutil.copytree(ROOT / "src/prnn", home / "prnn", ignore=shutil.ignore_patterns("__pycache__", "demo"))
    from prnn.runtime.cpu import library

    shutil.copy(library.library_path(), home / "prnn/runtime/cpu/libprnn_cpu.so")
    where = (
        f"import sys\nsys.path.insert(0, {str(home)!r})\nimport prnn\nassert prnn.__file__.startswith({str(home)!r})\n"
    )
    python(where + BUILT_IN + USERS, PRNN_CACHE_DIR=str(home / "a cache"), cwd=home)
    assert len(list(home.glob("a cache/cells/*/cell.so"))) == 1


LIBRARY = """
import sys
from pathlib import Path
from prnn.runtime.cpu import library

library.library_path = lambda: Path(sys.argv[1])
import prnn
"""


@pytest.mark.parametrize("what", ["empty", "another library", "another version"])
def test_a_library_that_does_not_belong_is_refused_with_a_message(what, tmp_path):
    path = tmp_path / "libprnn_cpu.so"
    if what == "another version":
        source = tmp_path / "old.cpp"
        source.write_text('extern "C" int prnn_layer_abi_version() { return 0; }')
        subprocess.run(["c++", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    elif what == "another library":
        source = tmp_path / "other.cpp"
        source.write_text("int other() { return 0; }")
        subprocess.run(["c++", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    else:
        path.write_bytes(b"")
    refused = "try:\n" + "".join(f"    {line}\n" for line in BUILT_IN.splitlines())
    refused += "except prnn.errors.BuildError as error:\n    print(error)"
    text = python(LIBRARY + refused, str(path))
    assert "libprnn_cpu.so" in text and (
        "version 0" in text if what == "another version" else "cannot be loaded" in text
    )
    assert "install" in text or "build it again" in text


def test_without_the_library_cells_run_interpreted_and_say_why(tmp_path):
    nothing = "from prnn.runtime.cpu import library\nlibrary.library_path = lambda: None\n"
    text = python(CATCH_WARNINGS + nothing + BUILT_IN + "print(*caught)")
    assert "PrnnFallbackWarning" in text and "the native engine is missing" in text


def test_nothing_is_loaded_or_compiled_on_import():
    text = python(
        "import prnn, sys\nprint(*sorted(each for each in sys.modules if each in ('torch', 'ctypes', 'subprocess')))"
    )
    assert "torch" not in text and prnn.__all__
