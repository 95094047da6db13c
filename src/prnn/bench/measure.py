"""One row: check every variant, then time them in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prnn.bench.floors import Machine, floor
from prnn.bench.origin import Origin
from prnn.bench.process import VariantFailed, VariantProcess
from prnn.bench.rows import Row
from prnn.bench.truth import PEER_LIMIT, truth
from prnn.bench.variants import OURS, CannotRun, Prepared
from prnn.bench.workload import Workload

MIN_ROUNDS, ROUNDS, MAX_ROUNDS = 5, 20, 100
# Threads of a library that wait by spinning give up within this time; the next variant starts on a quiet machine.
QUIET_S = 0.005


@dataclass
class Measured:
    """What happened in one row.

    Attributes:
        family, plan: this library's choice; empty if it failed.
        times: name -> microseconds a timestep, one for each round.
        remarks: a sentence for each variant that failed, or erred more than this library may.
    """

    family: str = ""
    plan: str = ""
    times: dict[str, list[float]] = field(default_factory=dict)
    max_error: float | None = None
    checked: bool = False
    remarks: list[str] = field(default_factory=list)


def measure(workload: Workload, processes: Mapping[str, VariantProcess], seconds: float) -> Measured:
    """Check and time a workload by every variant.

    Args:
        seconds: to spend on timing, for all variants together; every variant gets at least MIN_ROUNDS turns of one call.
    """
    measured = Measured()
    ready = _checked(workload, processes, measured)
    turn = seconds / max(len(ready), 1) / ROUNDS
    calls = {name: _attempt(measured, ready, name, "calls_in", turn) for name in ready.copy()}
    measured.times = {name: [] for name in ready}
    start = time.perf_counter()
    for round_ in range(MAX_ROUNDS):
        if round_ >= MIN_ROUNDS and time.perf_counter() - start > seconds:
            break
        # Every other round backwards, so that nobody always follows the same one.
        for name in list(ready)[:: 1 if round_ % 2 else -1]:
            if workload.threads > 1:
                time.sleep(QUIET_S)
            taken = _attempt(measured, ready, name, "time", calls[name])
            if taken is not None:
                measured.times[name].append(taken / calls[name] / workload.steps * 1e6)
    measured.times = {name: measured.times[name] for name in ready}
    return measured


def _checked(
    workload: Workload, processes: Mapping[str, VariantProcess], measured: Measured
) -> dict[str, VariantProcess]:
    """The variants that are ready to be timed, with what they compute compared."""
    expected, ready = truth(workload), dict(processes)
    for name in processes:
        prepared: Prepared | None = _attempt(measured, ready, name, "prepare", workload)
        if prepared is None:
            continue
        errors = expected.errors(prepared.outputs)
        largest, accepted = max(errors.values()), expected.accepts(errors)
        if name == OURS:
            measured.family, measured.plan = prepared.family, prepared.plan
            # JSON has no infinity, which stands for NaN and missing outputs here.
            measured.max_error, measured.checked = largest if largest < float("inf") else None, accepted
        if not accepted:
            worst = max(errors, key=errors.__getitem__)
            measured.remarks.append(
                f"{name}: {worst} differs from float64 by {largest:.1e} of its largest value, "
                f"torch.nn in float32 by {expected.torch_error[worst]:.1e}"
            )
        if name != OURS and largest > PEER_LIMIT:
            del ready[name]
    return ready


def _attempt(measured: Measured, ready: dict[str, VariantProcess], name: str, request: str, *arguments: object) -> Any:
    """An answer, or None and one variant fewer."""
    try:
        return ready[name].ask(request, *arguments)
    except CannotRun:
        pass
    except VariantFailed as failure:
        measured.remarks.append(f"{name} failed: {failure}")
    del ready[name]
    return None


def as_row(suite: str, origin: Origin, workload: Workload, measured: Measured, machine: Machine) -> Row:
    """A workload's measurement in the schema."""
    floor_us, floor_by = floor(workload, machine)
    medians = {name: statistics.median(times) for name, times in measured.times.items()}
    ours_us = medians.pop(OURS, None)
    best_peer = min(medians, key=medians.__getitem__, default=None)
    return {
        "suite": suite,
        "device": origin["device"],
        "versions": origin["versions"],
        "commit": origin["commit"],
        "date": origin["date"],
        "cell": workload.cell,
        "dtype": "fp32",
        "math": "ieee",
        "pass": workload.mode,
        "hidden": workload.hidden,
        "input": workload.input,
        "layers": 1,
        "directions": 1,
        "projection": 0,
        "heads": 1,
        "batch": workload.batch,
        "steps": workload.steps,
        "threads": workload.threads,
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
    }
