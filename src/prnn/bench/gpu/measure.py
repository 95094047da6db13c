"""One row of a GPU's suite: check every variant, then time them in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from prnn.bench.gpu import suites, variants
from prnn.bench.gpu.floors import floor
from prnn.bench.gpu.timing import DeviceTimer, WallTimer
from prnn.bench.gpu.truth import TIMES_APART, TIMES_OURS, TOLERANCE, apart, error, truth
from prnn.bench.gpu.variants import Variant
from prnn.bench.gpu.workload import GpuWorkload, suite_name
from prnn.bench.origin import Origin
from prnn.bench.rows import Row
from prnn.bench.variants import OURS
from prnn.errors import PrnnError
from prnn.facts import GpuFacts

T = TypeVar("T")

MIN_ROUNDS, MAX_ROUNDS = 5, 25
CUDNN_IN_TURNS = 2  # of its algorithms, the fastest of a first trial; the others keep the time of that trial
SLOW = 3.0  # times the fastest: such a peer takes every third turn
# cuDNN compiles PERSIST_DYNAMIC anew for every size and batch, and it takes the sequences one after the other: with 16 of them 14 to 85 us
# a step were measured where another algorithm took 2 to 13.
DYNAMIC_BATCH = 4


@dataclass
class Measured:
    """What happened in one row.

    Attributes:
        times: name -> microseconds a timestep, one for each turn.
        refused: peer -> why it is not among them.
        remarks: sentences for whoever watches.
    """

    family: str = ""
    plan: str = ""
    times: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    max_error: float | None = None
    checked: bool = False
    remarks: list[str] = field(default_factory=list)


def measure(workload: GpuWorkload, peers: Sequence[str], seconds: float) -> Measured:
    """Check and time a workload.

    Args:
        seconds: to spend on turns; there are MIN_ROUNDS at least.

    Raises:
        PrnnError: the device stopped working.
    """
    measured = Measured()
    with torch.no_grad(), variants.float32_math(workload.math):
        ready = _checked(workload, peers, measured)
        try:
            _time(workload, ready, measured, seconds)
        finally:
            for variant in ready.values():
                variant.close()
    return measured


def _checked(workload: GpuWorkload, peers: Sequence[str], measured: Measured) -> dict[str, Variant]:
    """The variants that are ready to be timed, with what they compute compared."""
    data = variants.draw(workload)
    true, tolerance = truth(workload, data), TOLERANCE[workload.arithmetic]
    ready, outputs = dict[str, Variant](), dict[str, tuple[Tensor, ...]]()
    for name in (OURS, *peers):
        if name == f"{suites.CUDNN}persist_dynamic" and workload.batch > DYNAMIC_BATCH:
            measured.refused[name] = f"not tried with more than {DYNAMIC_BATCH} sequences"
            continue
        variant = _attempt(measured, name, partial(variants.prepare, name, workload, data))
        got = None if variant is None else _attempt(measured, name, variant.call)
        if variant is None or got is None:
            continue
        off = error(got[0], true, workload)
        if name == OURS:
            measured.family, measured.plan = variant.family, variant.plan
            measured.max_error, measured.checked = off if off < float("inf") else None, off <= tolerance
        if not off <= tolerance:
            measured.remarks.append(f"{name}: y differs from float64 by {off:.1e} of its largest value")
        if name != OURS and not off <= TIMES_OURS * tolerance:
            measured.refused[name] = f"it is off by {off:.1e}"
            variant.close()
            continue
        ready[name], outputs[name] = variant, got
    if OURS in outputs and len(outputs) > 1:
        peer = next(name for name in outputs if name != OURS)
        off = apart(outputs[OURS], outputs[peer])
        if not off <= TIMES_APART * tolerance:
            measured.checked = False
            measured.remarks.append(f"{OURS} and {peer} differ by {off:.1e} over all steps")
    return ready


def _time(workload: GpuWorkload, ready: dict[str, Variant], measured: Measured, seconds: float) -> None:
    timers = dict[str, DeviceTimer | WallTimer]()

    def turn(name: str) -> bool:
        taken = _attempt(measured, name, timers[name].us)
        if taken is None:
            return False
        measured.times.setdefault(name, []).append(taken / workload.steps)
        return True

    for name, variant in ready.items():
        timer = _attempt(measured, name, partial(_timer, workload, name, variant))
        if timer is not None:
            timers[name] = timer
    alive = [name for name in timers if turn(name)]
    first = {name: measured.times[name][0] for name in alive}
    cudnn = sorted((name for name in alive if name.startswith(suites.CUDNN)), key=first.__getitem__)
    alive = [name for name in alive if name not in cudnn[CUDNN_IN_TURNS:]]
    fastest = min(first.values(), default=0.0)
    start = time.perf_counter()
    for round_ in range(MAX_ROUNDS):
        if round_ >= MIN_ROUNDS and time.perf_counter() - start > seconds:
            break
        # Every other round backwards, so that nobody always follows the same one.
        for name in alive[:: 1 if round_ % 2 else -1]:
            if round_ % 3 and first[name] > SLOW * fastest and name != OURS:
                continue
            if not turn(name):
                alive = [each for each in alive if each != name]


def _timer(workload: GpuWorkload, name: str, variant: Variant) -> DeviceTimer | WallTimer:
    if workload.timing != "device":
        variant.call()  # the first call after others' is another
        return WallTimer(variant.call)
    # A product launched step by step is what its user waits for: its launches belong to its time.
    return DeviceTimer(variant.call, hidden=name != suites.GEMM_LAUNCHED)


def _attempt(measured: Measured, name: str, action: Callable[[], T]) -> T | None:
    """What an action returns once the device has done it, or None and a reason.

    Raises:
        PrnnError: the device does nothing any more.
    """
    try:
        result = action()
        torch.cuda.synchronize()
        return result
    except Exception as failure:  # whatever a peer raises costs its place in the row, not the run
        reason = f"{type(failure).__name__}: {failure}".replace("\n", " ")[:300]
    measured.times.pop(name, None)
    if name == OURS:
        measured.checked = False
        measured.remarks.append(f"{OURS} failed: {reason}")
    else:
        measured.refused[name] = reason
    try:
        torch.cuda.synchronize()
    except RuntimeError as lost:
        raise PrnnError(f"the GPU stopped working when {name} ran: {reason}") from lost
    return None


def as_row(suite: str, origin: Origin, workload: GpuWorkload, measured: Measured, facts: GpuFacts) -> Row:
    """A workload's measurement in the schema."""
    floor_us, floor_by = floor(workload, facts)
    medians = {name: statistics.median(times) for name, times in measured.times.items()}
    ours_us = medians.pop(OURS, None)
    best_peer = min(medians, key=medians.__getitem__, default=None)
    row: Row = {
        "suite": suite_name(suite, workload),
        "device": origin["device"],
        "versions": origin["versions"],
        "commit": origin["commit"],
        "date": origin["date"],
        "cell": workload.cell,
        "dtype": workload.dtype,
        "math": workload.math,
        "pass": "forward",
        "hidden": workload.hidden,
        "input": workload.input,
        "layers": workload.layers,
        "directions": workload.directions,
        "projection": workload.projection,
        "heads": 1,
        "batch": workload.batch,
        "steps": workload.steps,
        "threads": 1,
        "family": measured.family,
        "plan": measured.plan,
        "ours_us": ours_us,
        "ours_spread": None if ours_us is None else [min(measured.times[OURS]), max(measured.times[OURS])],
        "floor_us": floor_us,
        "floor_by": floor_by,
        "peers": medians,
        "best_peer": best_peer,
        "ratio": None if ours_us is None or best_peer is None else medians[best_peer] / ours_us,
        "max_error": measured.max_error,
        "checked": measured.checked and ours_us is not None,
        "refused": measured.refused,
    }
    if workload.network:
        row["network"] = workload.network
    return row
