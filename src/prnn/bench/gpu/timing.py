"""How long a call takes: of the GPU without Python's own time, or of the caller who waits for the result."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_CYCLES_PER_US = 2000  # of a GPU at its highest clock: a sleep lasts at least as long as it is asked to
MOST_SLEEP_US = 16_000.0
_MARGIN_US = 50.0


class DeviceTimer:
    """Microseconds of the GPU from a call's first operation to its last.

    The GPU sleeps until the call is enqueued, so that it does not wait for the host. Where it woke up too early the sleep is doubled.
    A call of more launches than the driver's queue holds cannot be enqueued in advance: the host waits for the end of any sleep. Such a
    call is timed as it is, with the part that fits the queue enqueued.

    Args:
        hidden: False to time the call as it is launched, without a sleep.
    """

    def __init__(self, call: Callable[[], object], hidden: bool = True) -> None:
        self._call = call
        self._grows, self._sleep_us = hidden, 0.0
        if hidden:
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            self._sleep_us = min(MOST_SLEEP_US, 1.5 * (time.perf_counter() - start) * 1e6 + _MARGIN_US)
            torch.cuda.synchronize()

    def us(self) -> float:
        """One call."""
        for _ in range(3):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if self._sleep_us:
                torch.cuda._sleep(int(self._sleep_us * _CYCLES_PER_US))
            begin.record()
            self._call()
            end.record()
            is_late = begin.query()
            end.synchronize()
            if not self._grows or not is_late or self._sleep_us >= MOST_SLEEP_US:
                break
            self._sleep_us = min(MOST_SLEEP_US, 2 * self._sleep_us)
        else:
            self._grows = False
        return float(begin.elapsed_time(end)) * 1e3


class WallTimer:
    """Microseconds from a call to its result, as a caller who needs it waits for it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def us(self) -> float:
        """One call."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e6


def captured(call: Callable[[], tuple[torch.Tensor, ...]]) -> Callable[[], tuple[torch.Tensor, ...]]:
    """The replay of a CUDA graph of the call; its outputs are overwritten by the next replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()

    def replay() -> tuple[torch.Tensor, ...]:
        graph.replay()
        return outputs

    return replay
