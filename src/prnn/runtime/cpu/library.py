"""The native library: its C interface (kernels/cpu/layer.h, api.cpp) in ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path

from prnn.errors import BuildError

LAYER_ABI = 2
MISSING = (
    "the native engine is missing: this copy of prnn was installed without building it; "
    "run `pip install .` in the source tree (needs a C++17 compiler), or install a wheel"
)
MAX_STATES = MAX_VECTORS = 8

REVERSE, RESTART_TO_INITIAL, IN_PLACE, PACKED = 1, 2, 4, 8
WEIGHTS = {"same": 0, "int8": 16, "bfloat16": 32}

_states, _vectors = c_void_p * MAX_STATES, c_void_p * MAX_VECTORS


class Layer(Structure):
    """struct PrnnLayer of kernels/cpu/layer.h, member for member."""

    _fields_ = [
        ("abi", c_int32),
        ("dtype", c_int32),
        ("flags", c_int32),
        ("threads", c_int32),
        ("steps", c_int64),
        ("batch", c_int64),
        ("rows", c_int64),
        ("input_size", c_int64),
        ("hidden_size", c_int64),
        ("proj_size", c_int64),
        ("cell", c_void_p),
        ("batch_sizes", c_void_p),
        ("restart", c_void_p),
        ("x", c_void_p),
        ("w_ih", c_void_p),
        ("w_hh", c_void_p),
        ("b_ih", c_void_p),
        ("b_hh", c_void_p),
        ("w_hr", c_void_p),
        ("vectors", _vectors),
        ("states", _states),
        ("y", c_void_p),
        ("y_row", c_int64),
        ("final_states", _states),
        ("saved", c_void_p),
        ("packed", c_void_p),
        ("scales", c_void_p * 2),
        ("d_y", c_void_p),
        ("d_y_row", c_int64),
        ("d_final_states", _states),
        ("d_x", c_void_p),
        ("d_states", _states),
        ("d_w_ih", c_void_p),
        ("d_w_hh", c_void_p),
        ("d_b_ih", c_void_p),
        ("d_b_hh", c_void_p),
        ("d_w_hr", c_void_p),
        ("d_vectors", _vectors),
    ]


def library_path() -> Path | None:
    """Where the native library lies, or None if the package was installed without it."""
    import prnn.runtime.cpu as here  # an editable install puts the library in another folder of the package's path

    for folder in here.__path__:
        for name in ("libprnn_cpu.so", "libprnn_cpu.dylib"):
            if (Path(folder) / name).exists():
                return Path(folder) / name
    return None


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Load the native library.

    Raises:
        BuildError: it is missing, is for another machine or belongs to another version of the package.
    """
    path = library_path()
    if path is None:
        raise BuildError(MISSING)
    try:
        library = ctypes.CDLL(str(path))
        found = library.prnn_layer_abi_version()
    except (OSError, AttributeError) as error:
        raise BuildError(
            f"the native engine cannot be loaded: {error}; install prnn again, or build it on this machine"
        ) from error
    if found != LAYER_ABI:
        raise BuildError(f"{path} has interface version {found}, this copy of prnn needs {LAYER_ABI}; build it again")
    library.prnn_usable_isas.restype = c_char_p
    library.prnn_engine.restype = c_void_p
    library.prnn_engine.argtypes = [c_char_p]
    library.prnn_builtin_cell.restype = c_void_p
    library.prnn_builtin_cell.argtypes = [c_void_p, c_char_p]
    for name, result in (
        ("forward", c_int),
        ("backward", c_int),
        ("saved_elements", c_int64),
        ("packed_bytes", c_int64),
        ("pack", None),
    ):
        function = getattr(library, f"prnn_{name}")
        function.restype = result
        function.argtypes = [c_void_p, POINTER(Layer)]
    return library


def usable_isas() -> tuple[str, ...]:
    """The instruction sets that both the library and this machine have, best first; empty without the library."""
    return tuple(load().prnn_usable_isas().decode().split()) if library_path() else ()
