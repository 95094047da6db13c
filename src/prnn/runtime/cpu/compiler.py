"""Compile a user's cell for the native engine: the emitted text, the engine's headers, one compiler call, a cached library.

The cache is content-addressed: one folder for each (text, headers, compiler, flags), holding ``cell.cpp`` beside ``cell.so``. It is
made under a temporary name and renamed, so that two processes may build at once; an entry that cannot be loaded is built again.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

import prnn.kernels
from prnn import env
from prnn.cells import BUILTIN, Cell
from prnn.cells.emit_c import emit_cell
from prnn.errors import BuildError, PrnnFallbackWarning
from prnn.runtime.cpu.library import load

# Those of CMakeLists.txt: a cell exchanges vectors with the engine.
FLAGS = (
    "-std=gnu++17",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
)
ISA_FLAGS = {
    "x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "x86-64-v3": ("-march=x86-64-v3",),
    "x86-64": (),
    "neon": (),
}
NO_COMPILER = "there is no C++ compiler (c++, g++, clang++) on the PATH; install one"
HEADERS = ("cell_loops.h", "cell_table.h", "simd.h")


def find_compiler() -> str | None:
    """The C++ compiler for users' cells: c++, g++ or clang++ on the PATH."""
    return next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)


@lru_cache(maxsize=1)
def _builtin_digests() -> dict[str, str]:
    return {cell.digest: name for name, cell in BUILTIN.items()}


@lru_cache(maxsize=256)
def native_cell(cell: Cell, isa: str) -> int:
    """The address of the cell's table (struct PrnnCell) for one instruction set; compiles it if it is not built in.

    Raises:
        BuildError: the compiler failed; holds the command and its output.
    """
    builtin = _builtin_digests().get(cell.digest)
    if builtin is not None:
        library = load()
        return int(library.prnn_builtin_cell(library.prnn_engine(isa.encode()), builtin.encode()))
    compiler = find_compiler()
    if compiler is None:
        raise BuildError(f"cell {cell.name!r} has to be compiled: {NO_COMPILER}")
    folder = Path(next(iter(prnn.kernels.__path__))) / "cpu"
    text = "\n".join(
        [
            '#include "cell_loops.h"',
            "namespace prnn::PRNN_ISA {",
            emit_cell(cell),
            "}",
            'extern "C" __attribute__((visibility("default"))) const PrnnCell prnn_user_cell;',
            "const PrnnCell prnn_user_cell = prnn::PRNN_ISA::make_cell<prnn::PRNN_ISA::Cell>();",
            "",
        ]
    )
    command = [compiler, *FLAGS, *ISA_FLAGS[isa], f"-I{folder}"]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    parts = [
        text,
        version,
        platform.machine(),
        *FLAGS,
        *ISA_FLAGS[isa],
        *((folder / name).read_text() for name in HEADERS),
    ]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    entry = env.cache_dir() / "cells" / f"{cell.name}-{isa}-{key}"
    for attempt in ("cached", "built"):
        try:
            if attempt == "built" or not (entry / "cell.so").exists():
                _build(command, text, entry)
        except OSError as error:
            entry = _own_folder(f"{entry.parent}: {error.strerror}") / entry.name
            _build(command, text, entry)
        try:
            loaded = ctypes.CDLL(str(entry / "cell.so"))
            return ctypes.addressof(ctypes.c_char.in_dll(loaded, "prnn_user_cell"))
        except OSError as error:  # an unreadable entry is a miss
            if attempt == "built":
                raise BuildError(
                    f"cell {cell.name!r} was compiled but {entry / 'cell.so'} cannot be loaded: {error}"
                ) from error
            shutil.rmtree(entry, ignore_errors=True)
    raise AssertionError("unreachable")


@lru_cache(maxsize=1)
def _own_folder(reason: str) -> Path:
    """Where cells go when the cache cannot be written: a folder that goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="prnn-cells-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    warnings.warn(
        f"compiled cells are not kept, because their folder cannot be written ({reason}); PRNN_CACHE_DIR names another",
        PrnnFallbackWarning,
        stacklevel=3,
    )
    return folder


def _build(command: list[str], text: str, entry: Path) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".building-"))
    try:
        (work / "cell.cpp").write_text(text, encoding="utf-8")
        full = [*command, "-o", str(work / "cell.so"), str(work / "cell.cpp")]
        result = subprocess.run(full, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise BuildError(f"compiling a cell failed: {' '.join(full)}\n{result.stderr}")
        try:
            os.rename(work, entry)
        except OSError:
            if not (entry / "cell.so").exists():  # otherwise another process was faster
                shutil.rmtree(entry, ignore_errors=True)  # somebody took the library out of it
                os.rename(work, entry)
    finally:
        shutil.rmtree(work, ignore_errors=True)
