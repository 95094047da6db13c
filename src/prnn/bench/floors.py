"""What physics leaves: the least time a row can take on this machine, from the bytes and operations it cannot do without."""

from __future__ import annotations

from collections.abc import Callable

from prnn.bench.workload import Workload
from prnn.facts import CpuFacts, CpuRates
from prnn.kernels.family import weight_bytes
from prnn.runtime.cpu import rates

MEMORY_BYTES = 32 << 20  # beyond any L2


class Machine:
    """This machine's limits, measured when first asked for and then remembered."""

    def __init__(self, seconds: float = 0.05) -> None:
        self._seconds = seconds
        self._read_us: dict[tuple[int, int], float] = {}
        self._gflops: dict[int, float] = {}

    def read_us(self, num_bytes: int, threads: int) -> float:
        """Microseconds to read `num_bytes` again and again, an equal slice on each thread, from whichever caches keep them."""
        key = num_bytes, threads
        if key not in self._read_us:
            self._read_us[key] = rates.read_us(num_bytes, threads, self._seconds)
        return self._read_us[key]

    def gflops(self, threads: int) -> float:
        """Billions of float32 operations a second."""
        if threads not in self._gflops:
            self._gflops[threads] = rates.gflops(threads, self._seconds)
        return self._gflops[threads]


def floor(workload: Workload, machine: Machine) -> tuple[float, str]:
    """Microseconds a step that `workload` takes at least, and what sets them: ``bytes`` or ``arithmetic``.

    Bytes are those of the weights that every step reads: the recurrent ones, and in a stream the input's too. Training reads the
    recurrent weights a second time backward, and does the forward pass's operations twice more: for what flows back to the input
    and to the state before, and for the gradients of the weights.
    """
    training = workload.mode == "training"
    input_bytes, recurrent_bytes = weight_bytes(workload.problem)
    step_bytes = recurrent_bytes + (input_bytes if workload.steps == 1 else 0)
    bytes_us = machine.read_us(step_bytes, workload.threads) * (2 if training else 1)
    products = workload.batch * (input_bytes + recurrent_bytes) // workload.problem.itemsize * (3 if training else 1)
    arithmetic_us = 2 * products / machine.gflops(workload.threads) / 1e3
    return max((bytes_us, "bytes"), (arithmetic_us, "arithmetic"))


def measured_rates(facts: CpuFacts, machine: Machine, say: Callable[[str], None]) -> CpuRates:
    """What one core of this machine does at best.

    Args:
        say: told what is measured next.
    """
    # Half of a private cache; of the shared one, no more than is kept beside other programs; of the memory, what weights may take, since
    # far more can be read far slower for want of large pages.
    sizes = {
        "L1": facts.l1d_bytes // 2,
        "L2": facts.l2_bytes // 2,
        "L3": facts.l3_bytes // 8,
        "memory": facts.l3_bytes or MEMORY_BYTES,
    }
    read = {}
    for home, size in sizes.items():
        if size:
            say(f"reading {home}: {size / 2**20:.3g} MiB again and again")
            read[home] = size / machine.read_us(size, 1) / 1e3
    say("multiplying and adding")
    return CpuRates(machine.gflops(1), read["L1"], read["L2"], read.get("L3", read["memory"]), read["memory"])
