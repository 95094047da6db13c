"""What the CPU does at best, measured by the native library (kernels/cpu/floors.cpp)."""

from __future__ import annotations

from ctypes import byref, c_double, c_int, c_int64, c_void_p

from prnn.errors import BuildError, PrnnError
from prnn.runtime.cpu.library import load, usable_isas


def read_us(num_bytes: int, threads: int, seconds: float = 0.05) -> float:
    """Microseconds to read `num_bytes` again and again, each thread its own slice, from whichever caches keep them.

    Args:
        seconds: how long to measure.

    Raises:
        BuildError: the native library is missing or too old.
        PrnnError: another Python thread kept the engine busy.
        MemoryError: there are not that many bytes.
    """
    return _measured("prnn_read_us", c_int64(num_bytes), c_int(threads), c_double(seconds))


def gflops(threads: int, seconds: float = 0.05) -> float:
    """Billions of float32 operations a second, a multiply-add counted as two, by all threads together.

    Raises:
        BuildError, PrnnError: as `read_us`.
    """
    return _measured("prnn_gflops", c_int(threads), c_double(seconds))


def _measured(name: str, *arguments: c_int64 | c_int | c_double) -> float:
    library = load()
    if not hasattr(library, name):
        raise BuildError(
            "the native engine cannot measure the machine: it is older than this copy of prnn; build it again"
        )
    result = c_double()
    engine = c_void_p(library.prnn_engine(usable_isas()[0].encode()))
    status = getattr(library, name)(engine, *arguments, byref(result))
    if status == 1:
        raise MemoryError("no memory to measure how fast it is read")
    if status == 2:
        raise PrnnError("another thread of this process kept the engine's threads busy while the machine was measured")
    return result.value
