"""What physics leaves of a timestep on a Hopper GPU: an exchange that was measured alone, and the chip's rates."""

from __future__ import annotations

from operator import itemgetter

from prnn.bench.gpu.workload import GpuWorkload
from prnn.cells import BUILTIN
from prnn.facts import GpuFacts

# Measured on an H200 by kernels that do nothing else: every CTA gathers what all have made, over and over; the better of 256 and 512
# threads. CTAs -> (bytes gathered, us). Up to 16 CTAs inside a cluster (st.async), more through the L2 (readiness in the data).
_GATHER_US = {
    2: ((256, 0.258), (1024, 0.284), (4096, 0.373), (16384, 0.688), (32768, 1.111)),
    4: ((256, 0.271), (1024, 0.288), (4096, 0.380), (16384, 0.696), (32768, 1.123)),
    8: ((256, 0.278), (1024, 0.299), (4096, 0.380), (16384, 0.705), (32768, 1.135)),
    16: ((256, 0.294), (1024, 0.347), (4096, 0.421), (16384, 0.735), (32768, 1.194)),
    32: ((512, 0.633), (4096, 0.642), (8192, 0.698), (16384, 1.003), (32768, 1.404)),
    64: ((1024, 0.704), (4096, 0.704), (8192, 0.724), (16384, 1.034), (32768, 1.517)),
    128: ((2048, 0.851), (4096, 0.851), (8192, 0.851), (16384, 1.077), (32768, 1.564)),
}
_SYNC_US = 0.016  # a barrier of one CTA's 256 threads: all that a step on one SM has to wait for
_SINGLE_TFLOPS, _TF32_SHARE = 67.0, 0.5  # float32 outside the tensor cores; TF32's share of the rate of 16 bits
_TILE = 8  # sequences of the narrowest product
_L2_GBYTES_PER_S = 4300.0  # what 128 CTAs gather more, 16 KB each, in the 0.487 us that they take longer for it
_REGISTER_BYTES = 4


def floor(workload: GpuWorkload, facts: GpuFacts) -> tuple[float, str]:
    """Microseconds a timestep takes at least, for all layers and directions, and what sets them.

    ``exchange``: in every step each of the SMs that share a copy of the recurrent weights needs what the others made, and multiplies it
    with its part for one tile of sequences; over the best number of SMs that can hold a copy, and all copies that fit. ``bytes``: where
    no copy fits or one has too many sequences to exchange, the weights come anew from the L2 in every step, which all SMs begin
    together; or input and output pass through the memory. ``arithmetic``: all products of the step at the chip's rate. Layers one after
    another; both directions of a layer at once, on half of the chip each.
    """
    w, cell = workload, BUILTIN[workload.cell]
    itemsize = 4 if w.dtype == "fp32" else 2
    tflops = {"fp16": 1.0, "bf16": 1.0, "fp32 tf32": _TF32_SHARE}.get(
        w.arithmetic, 0.0
    ) * facts.half_tflops or _SINGLE_TFLOPS
    gates = len(cell.recurrent_gates) * w.hidden
    recurrent = gates * w.output + w.projection * w.hidden
    exchange_us = _exchange_us(w, recurrent, itemsize, facts, tflops / facts.sms)
    streaming_us = _gather_us(128, 0) + w.directions * recurrent * itemsize / _L2_GBYTES_PER_S / 1e3
    total_us, total_by = 0.0, dict[str, float]()
    for layer in range(w.layers):
        width = w.input if layer == 0 else w.directions * w.output
        memory = w.batch * w.directions * (width + w.output) * itemsize
        by, least_us = max(
            min(("exchange", exchange_us), ("bytes", streaming_us), key=itemgetter(1)),
            ("arithmetic", 2 * w.batch * (recurrent + gates * width) * w.directions / tflops / 1e6),
            ("bytes", memory / facts.memory_gbytes_per_s / 1e3),
            key=itemgetter(1),
        )
        total_us += least_us
        total_by[by] = total_by.get(by, 0.0) + least_us
    return total_us, max(total_by, key=total_by.__getitem__)


def _exchange_us(w: GpuWorkload, recurrent: int, itemsize: int, facts: GpuFacts, tflops_of_sm: float) -> float:
    """Over the numbers of SMs that can hold the weights; infinite where there are too few."""
    sms = facts.sms // w.directions
    least = -(-recurrent * itemsize // (facts.shared_bytes + facts.registers * _REGISTER_BYTES))
    found = []
    for ctas in sorted({1, *_GATHER_US, least}):
        if least <= ctas <= sms:
            served = -(-w.batch // (sms // ctas))
            gather_us = _SYNC_US if ctas == 1 else _gather_us(ctas, served * w.output * itemsize)
            found.append(gather_us + 2 * min(w.batch, _TILE) * recurrent / ctas / tflops_of_sm / 1e6)
    return min(found, default=float("inf"))


def _gather_us(ctas: int, num_bytes: int) -> float:
    """Between the measured sizes on a line; below them what the smallest takes; above them as the last two rise."""
    # The nearest that is not larger, but never a cluster for more CTAs than one can have.
    points = _GATHER_US[max(each for each in _GATHER_US if each <= max(ctas, 32 if ctas > 16 else 2))]
    if num_bytes <= points[0][0]:
        return points[0][1]
    (low, low_us), (high, high_us) = next(
        (pair for pair in zip(points, points[1:]) if num_bytes <= pair[1][0]), points[-2:]
    )
    return low_us + (high_us - low_us) * (num_bytes - low) / (high - low)
