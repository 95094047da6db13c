"""The CUDA driver's C interface in ctypes: a launch costs a few microseconds, and a cached kernel needs no package but the driver."""

from __future__ import annotations

import ctypes
import re
import threading
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_void_p
from functools import lru_cache

from prnn.errors import BuildError, PrnnError
from prnn.facts import GPUS, GpuFacts

# Of cuda.h.
LOCAL_BYTES, REGISTERS, MAX_DYNAMIC_SHARED_BYTES, NON_PORTABLE_CLUSTER_SIZE = 3, 4, 8, 14
_COOPERATIVE, _CLUSTER_DIMENSION = 2, 4
_CLOCK_KHZ, _SMS, _MEMORY_KHZ, _BUS_BITS, _L2_BYTES, _MAJOR, _MINOR, _SHARED_BYTES = 13, 16, 36, 37, 38, 75, 76, 97
_PORTABLE_MAPPED = 1 | 2
OLDEST_DRIVER = 12000
_thread = threading.local()


class LaunchAttribute(Structure):
    """CUlaunchAttribute; `value` begins with what this package uses: the shape of a cluster, or 1 for a cooperative launch."""

    _fields_ = [("id", c_uint), ("pad", c_uint), ("value", c_uint * 16)]


class LaunchConfig(Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(LaunchAttribute)),
        ("num_attributes", c_uint),
    ]

    @classmethod
    def of(
        cls, ctas: int, cluster_size: int, threads: int, shared_bytes: int, is_cooperative: bool = False
    ) -> LaunchConfig:
        """A one-dimensional launch on the default stream: in clusters, cooperative, or, with a cluster size of 0, neither."""
        config = cls((ctas, 1, 1), (threads, 1, 1), shared_bytes)
        kind, value = (_COOPERATIVE, (1,)) if is_cooperative else (_CLUSTER_DIMENSION, (cluster_size, 1, 1))
        if is_cooperative or cluster_size:  # GPUs without clusters know no such attribute
            config.attribute = LaunchAttribute(kind, 0, (c_uint * 16)(*value))  # kept alive with the config
            config.attributes, config.num_attributes = ctypes.pointer(config.attribute), 1
        return config


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """The driver's library.

    Raises:
        BuildError: there is none, or it is too old.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise BuildError(
            f"no CUDA driver was found ({error}); the GPU's kernels need an NVIDIA driver; the CPU works without"
        ) from error
    version = c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    if version.value < OLDEST_DRIVER:
        raise BuildError(
            f"the NVIDIA driver supports CUDA {version.value // 1000}.{version.value % 1000 // 10}, the kernels need "
            f"{OLDEST_DRIVER // 1000}.0 or newer; update the driver"
        )
    library.cuKernelSetAttribute.argtypes = [c_int, c_int, c_void_p, c_int]
    library.cuKernelGetAttribute.argtypes = [POINTER(c_int), c_int, c_void_p, c_int]
    library.cuLibraryGetKernel.argtypes = [POINTER(c_void_p), c_void_p, c_char_p]
    library.cuOccupancyMaxActiveClusters.argtypes = [POINTER(c_int), c_void_p, POINTER(LaunchConfig)]
    library.cuOccupancyMaxActiveBlocksPerMultiprocessor.argtypes = [POINTER(c_int), c_void_p, c_int, c_size_t]
    library.cuLaunchKernelEx.argtypes = [POINTER(LaunchConfig), c_void_p, POINTER(c_void_p), c_void_p]
    library.cuMemHostAlloc.argtypes = [POINTER(c_void_p), c_size_t, c_uint]
    check(library, library.cuInit(0), "initialising the CUDA driver")
    return library


def check(library: ctypes.CDLL, code: int, doing: str) -> None:
    """Raise what the driver reports.

    Raises:
        PrnnError: the code is not 0.
    """
    if code:
        text = c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        raise PrnnError(f"{doing} failed: CUDA error {code}, {(text.value or b'unknown').decode()}")


@lru_cache(maxsize=64)
def probe(device: int) -> GpuFacts:
    """A device of this machine, by its number."""
    library = load()

    def attribute(which: int) -> int:
        value = c_int()
        check(library, library.cuDeviceGetAttribute(ctypes.byref(value), which, device), f"asking device {device}")
        return value.value

    name = ctypes.create_string_buffer(256)
    check(library, library.cuDeviceGetName(name, len(name), device), f"asking for the name of device {device}")
    major, minor, sms = attribute(_MAJOR), attribute(_MINOR), attribute(_SMS)
    # What runs at once is a first guess by the number of SMs; a compiled kernel's occupancy is asked before it is chosen.
    arch = f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")
    by_name = [facts for key, facts in GPUS.items() if re.search(rf"{key}\b", name.value.decode(), re.IGNORECASE)]
    by_arch = [facts for facts in GPUS.values() if facts.arch == arch]
    known = (by_name + by_arch + [GPUS["h200"]])[0]
    clusters = tuple((size, max(1, count * sms // known.sms)) for size, count in known.active_clusters)
    return GpuFacts(
        name=name.value.decode(),
        arch=arch,
        sms=sms,
        active_clusters=clusters if major >= 9 else (),
        clock_mhz=attribute(_CLOCK_KHZ) // 1000 or known.clock_mhz,
        shared_bytes=attribute(_SHARED_BYTES),
        memory_gbytes_per_s=2 * attribute(_MEMORY_KHZ) * attribute(_BUS_BITS) // 8_000_000 or known.memory_gbytes_per_s,
        half_tflops=known.half_tflops * sms // known.sms,
        l2_bytes=attribute(_L2_BYTES) or known.l2_bytes,
    )


def make_current(device: int) -> None:
    """Give this thread the device's primary context unless it has one: PyTorch does so only when it first computes in a thread."""
    if getattr(_thread, "has_context", False):
        return
    library, context = load(), c_void_p()
    check(library, library.cuCtxGetCurrent(ctypes.byref(context)), "asking for the current context")
    if not context.value:
        check(library, library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), f"using device {device}")
        check(library, library.cuCtxSetCurrent(context), f"using device {device}")
    _thread.has_context = True


@lru_cache(maxsize=1)
def stopped_word() -> c_uint32:
    """A word in memory that all devices and the host see: the number of the last launch that gave up waiting."""
    library, address = load(), c_void_p()
    check(library, library.cuMemHostAlloc(ctypes.byref(address), 4096, _PORTABLE_MAPPED), "allocating pinned memory")
    assert address.value is not None
    word = c_uint32.from_address(address.value)
    word.value = 0
    return word
