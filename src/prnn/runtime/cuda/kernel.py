"""A kernel on a device: loaded, measured against its plan, launched."""

from __future__ import annotations

import ctypes
import itertools
from ctypes import Structure, c_int, c_void_p
from functools import lru_cache

from prnn.errors import PrnnError
from prnn.kernels.gpu import ENTRY, Arguments, Launch
from prnn.runtime.cuda import driver

# Clock cycles that a wait inside a kernel may take: seconds, where a step takes microseconds.
PATIENCE_CYCLES = 1 << 34
_launch_numbers = itertools.count(1)
_Parameters = c_void_p * 1


class Kernel:
    """A kernel loaded for one device, whose context must be current.

    Attributes:
        registers, local_bytes: of a thread, as the driver reports them; local memory means that registers were spilled.
    """

    def __init__(self, cubin: bytes, device: int, threads: int, shared_bytes: int) -> None:
        self._driver = driver.load()
        self._code = cubin  # the driver may read it later
        handle, kernel = c_void_p(), c_void_p()
        self._check(
            self._driver.cuLibraryLoadData(ctypes.byref(handle), cubin, None, None, 0, None, None, 0),
            "loading a kernel",
        )
        self._check(self._driver.cuLibraryGetKernel(ctypes.byref(kernel), handle, ENTRY.encode()), "finding a kernel")
        self._kernel, self._device = kernel, device
        self.threads, self.shared_bytes = threads, shared_bytes
        self._set(driver.MAX_DYNAMIC_SHARED_BYTES, shared_bytes)
        if driver.probe(device).cluster_sizes:
            self._set(driver.NON_PORTABLE_CLUSTER_SIZE, 1)
        self.registers, self.local_bytes = self._get(driver.REGISTERS), self._get(driver.LOCAL_BYTES)

    def _check(self, code: int, doing: str) -> None:
        driver.check(self._driver, code, doing)

    def _set(self, attribute: int, value: int) -> None:
        self._check(
            self._driver.cuKernelSetAttribute(attribute, value, self._kernel, self._device), "preparing a kernel"
        )

    def _get(self, attribute: int) -> int:
        value = c_int()
        code = self._driver.cuKernelGetAttribute(ctypes.byref(value), attribute, self._kernel, self._device)
        self._check(code, "asking for a kernel's attributes")
        return value.value

    def active_clusters(self, cluster_size: int) -> int:
        """Clusters that run at once on an idle device."""
        config = driver.LaunchConfig.of(cluster_size, cluster_size, self.threads, self.shared_bytes)
        count = c_int()
        code = self._driver.cuOccupancyMaxActiveClusters(ctypes.byref(count), self._kernel, ctypes.byref(config))
        self._check(code, "asking how many clusters run at once")
        return count.value

    def ctas_per_sm(self) -> int:
        """CTAs that run at once on an idle SM."""
        count = c_int()
        code = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(count), self._kernel, self.threads, self.shared_bytes
        )
        self._check(code, "asking how many CTAs run at once")
        return count.value

    def launch(self, launch: Launch, arguments: Arguments, stream: int) -> None:
        """Enqueue a kernel that waits inside; see `enqueue`."""
        patience = arguments.patience
        patience.cycles, patience.stopped = PATIENCE_CYCLES, ctypes.addressof(driver.stopped_word())
        patience.launch = next(_launch_numbers) % (1 << 32) or 1
        self.enqueue(launch, arguments, stream)

    def enqueue(self, launch: Launch, arguments: Structure, stream: int) -> None:
        """Enqueue on a stream of the current context. What `arguments` points to must live until the stream has come past it.

        Raises:
            PrnnError: the driver refuses the launch.
        """
        kept = _config(launch)
        config = driver.LaunchConfig.from_buffer_copy(kept)  # of this call alone: other threads launch too
        config.stream = stream
        parameters = _Parameters(ctypes.addressof(arguments))
        code = self._driver.cuLaunchKernelEx(ctypes.byref(config), self._kernel, parameters, None)
        if code:
            self._check(code, f"launching {launch}")


@lru_cache(maxsize=1024)
def _config(launch: Launch) -> driver.LaunchConfig:
    return driver.LaunchConfig.of(
        launch.ctas, launch.cluster_size, launch.threads, launch.shared_bytes, launch.is_cooperative
    )


def raise_if_stopped() -> None:
    """Report a launch that gave up waiting since the last look; costs no synchronisation.

    Raises:
        PrnnError: there was one.
    """
    word = driver.stopped_word()
    if word.value:
        number, word.value = word.value, 0
        raise PrnnError(
            f"launch {number} of this process gave up waiting inside a kernel after {PATIENCE_CYCLES:.1e} clock cycles; its "
            "outputs are NaN. The device is usable; run the call again. A debugger, or another process that holds the device for "
            "seconds, can cause this; otherwise please report it"
        )
