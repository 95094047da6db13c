"""What the CPU does at best, measured by the native library (kernels/cpu/floors.cpp)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p

from prnn.errors import BuildError
from prnn.runtime.cpu.library import load, usable_isas


def read_us(num_bytes: int, threads: int, seconds: float = 0.05) -> float:
    """Microseconds to read `num_bytes` again and again, each thread its own slice, from whichever caches keep them.

    Args:
        seconds: how long to measure.

    Raises:
        BuildError: the native library is missing or too old.
        MemoryError: there are not that many bytes.
    """
    result = c_double()
    if _function("prnn_read_us", c_int64)(_engine(), num_bytes, threads, seconds, result):
        raise MemoryError(f"no memory to read {num_bytes} bytes")
    return result.value


def gflops(threads: int, seconds: float = 0.05) -> float:
    """Billions of float32 operations a second, a multiply-add counted as two, by all threads together.

    Raises:
        BuildError: the native library is missing or too old.
    """
    result = c_double()
    _function("prnn_gflops")(_engine(), threads, seconds, result)
    return result.value


def _engine() -> int:
    return int(load().prnn_engine(usable_isas()[0].encode()))


def _function(name: str, *sizes: type[c_int64]) -> ctypes._NamedFuncPointer:
    library = load()
    if not hasattr(library, name):
        raise BuildError(
            "the native engine cannot measure the machine: it is older than this copy of prnn; build it again"
        )
    function: ctypes._NamedFuncPointer = getattr(library, name)
    function.argtypes = [c_void_p, *sizes, c_int, c_double, POINTER(c_double)]
    return function
