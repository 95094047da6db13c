"""A run of a GPU's suite: kernels compiled first, then the rows one after the other, with progress for a person."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from prnn.bench.gpu.measure import as_row, measure
from prnn.bench.gpu.suites import GpuSuite, spread
from prnn.bench.gpu.workload import GpuWorkload
from prnn.bench.origin import Origin, origin
from prnn.bench.rows import Row, save
from prnn.bench.run import say
from prnn.bench.text import microseconds
from prnn.errors import MissingDependency, PrnnError, PrnnFallbackWarning
from prnn.facts import GpuFacts, probe_cpu
from prnn.runtime.cuda import driver

MOST_PROCESSES = 16


def run(
    suite: GpuSuite,
    workloads: Sequence[GpuWorkload],
    seconds: float,
    minutes: float | None,
    file: Path | None,
    commit: str | None,
) -> list[Row]:
    """Measure `workloads` of a suite on the first GPU.

    Args:
        seconds: of timing for each row.
        minutes: after which no further row is begun; those measured until then cover the suite evenly.
        file: rewritten after every row, so that an interrupted run leaves what it has.
        commit: of the code, where it lies outside its history.

    Raises:
        MissingDependency, PrnnError: PyTorch has no GPU here, it stops working, or the file has no folder.
    """
    start = time.perf_counter()
    facts, where = _device(commit)
    if file is not None and not file.parent.is_dir():
        raise PrnnError(f"cannot write {file}: there is no folder {file.parent}")
    warnings.simplefilter("ignore", PrnnFallbackWarning)  # the row's family says it
    _compile(workloads)
    places = {workload: place for place, workload in enumerate(workloads)}
    rows: dict[int, Row] = {}
    begun = time.perf_counter()
    for number, workload in enumerate(spread(workloads), 1):
        if minutes is not None and time.perf_counter() - start > 60 * minutes:
            say(f"stopped after {minutes:g} minutes with {len(rows)} of {len(workloads)} rows")
            break
        measured = measure(workload, suite.peers(workload), seconds)
        row = as_row(suite.name, where, workload, measured, facts)
        rows[places[workload]] = row
        left = (time.perf_counter() - begun) / number * (len(workloads) - number)
        say(f"[{number}/{len(workloads)}, {left:.0f} s left] {workload}: {summary(row)}")
        for remark in measured.remarks:
            say(f"      {remark}")
        if file is not None:
            save([rows[place] for place in sorted(rows)], file)
    _say_refusals(list(rows.values()))
    return [rows[place] for place in sorted(rows)]


def summary(row: Row) -> str:
    """What came out, on one line."""
    if row["ours_us"] is None:
        return "FAILED"
    parts = [f"{microseconds(row['ours_us'])} us a step ({row['family']}), floor {microseconds(row['floor_us'])}"]
    for name, taken in sorted(row["peers"].items(), key=lambda pair: pair[1]):
        parts.append(f"{name} {microseconds(taken)}")
    if row["ratio"] is not None:
        parts.append(f"{row['ratio']:.2f}x")
    return "; ".join(parts) + ("" if row["checked"] else "; WRONG")


def _device(commit: str | None) -> tuple[GpuFacts, Origin]:
    try:
        import torch
    except ImportError as error:
        raise MissingDependency('prnn bench needs torch: install with  pip install "persistent-rnn[bench]"') from error
    if not torch.cuda.is_available():
        raise PrnnError(
            "this suite is measured on an NVIDIA GPU, and PyTorch finds none (torch.cuda.is_available() is False)"
        )
    facts, where = driver.probe(0), origin(probe_cpu())
    where["device"], where["commit"] = facts.name, commit or where["commit"]
    where["versions"] |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return facts, where


def _compile(workloads: Sequence[GpuWorkload]) -> None:
    """Fill the cache of kernels in many processes: one after the other they take longer than what they are measured for."""
    groups = dict[object, list[GpuWorkload]]()
    for each in workloads:
        groups.setdefault((each.cell, each.arithmetic, each.hidden), []).append(each)
    context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
    processes = min(MOST_PROCESSES, probe_cpu().cores, len(groups))
    try:
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            for number, failure in enumerate(pool.map(_run_once, groups.values()), 1):
                if number % 10 == 0 or number == len(groups):
                    say(f"kernels of {number} of {len(groups)} layers are compiled")
                if failure:
                    say(f"      {failure}")
    except BrokenProcessPool as broken:
        say(f"the other kernels are compiled when they are measured: {broken}")


def _run_once(workloads: Sequence[GpuWorkload]) -> str:
    """Run this library once for each plan; what fails is met again, and reported, when it is measured."""
    import torch

    from prnn.bench.gpu import variants
    from prnn.bench.variants import OURS

    warnings.simplefilter("ignore", PrnnFallbackWarning)
    failure = ""
    for each in workloads:
        with torch.no_grad(), variants.float32_math(each.math):
            try:
                variants.eager(OURS, each, variants.draw(each))()
                torch.cuda.synchronize()
            except Exception as error:
                failure = f"{each}: {type(error).__name__}: {error}".replace("\n", " ")[:300]
    return failure


def _say_refusals(rows: Sequence[Row]) -> None:
    """Each reason for which a peer is absent, with how often it was given."""
    counts = dict[tuple[str, str], int]()
    for row in rows:
        for name, reason in row.get("refused", {}).items():
            counts[name, reason] = counts.get((name, reason), 0) + 1
    for (name, reason), count in sorted(counts.items()):
        say(f"without {name} in {count} rows: {reason}")
