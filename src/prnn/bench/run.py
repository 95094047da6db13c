"""A run of a suite: the processes, the rows one after the other, progress for a person."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from prnn.bench.floors import Machine
from prnn.bench.measure import as_row, measure
from prnn.bench.origin import origin
from prnn.bench.process import VariantFailed, VariantProcess, installed
from prnn.bench.rows import Row, save
from prnn.bench.suites import Suite
from prnn.bench.text import microseconds
from prnn.bench.variants import MODULES, OURS
from prnn.bench.workload import Workload
from prnn.errors import PrnnError
from prnn.facts import probe_cpu


def run(suite: Suite, workloads: Sequence[Workload], threads: int, seconds: float, file: Path | None) -> list[Row]:
    """Measure `workloads` of a suite.

    Args:
        seconds: of timing for each row.
        file: rewritten after every row, so that an interrupted run leaves what it has.
    """
    import torch

    if file is not None and not file.parent.is_dir():
        raise PrnnError(f"cannot write {file}: there is no folder {file.parent}")
    facts = probe_cpu()
    where, machine, rows = origin(facts), Machine(), list[Row]()
    processes = _started([OURS, *suite.peers], threads)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the reference's threads must not spin beside what is timed
    try:
        for number, workload in enumerate(workloads, 1):
            workload = dataclasses.replace(workload, threads=threads)
            measured = measure(workload, processes, seconds)
            row = as_row(suite.name, where, workload, measured, machine)
            rows.append(row)
            say(f"[{number}/{len(workloads)}] {workload}: {_summary(row)}")
            for remark in measured.remarks:
                say(f"      {remark}")
            if file is not None:
                save(rows, file)
    finally:
        torch.set_num_threads(torch_threads)
        for process in processes.values():
            process.close()
    return rows


def say(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


def _started(names: Sequence[str], threads: int) -> dict[str, VariantProcess]:
    """A process for each variant that is installed and can be imported."""
    started = {}
    for name in names:
        if not installed(name):
            say(f"without {name}: not installed ({', '.join(MODULES[name][1])})")
            continue
        process = VariantProcess(name, threads)
        try:
            process.ask("ready")
        except VariantFailed as failure:
            process.close()
            if name == OURS:
                raise PrnnError(f"this library does not start: {failure}") from failure
            say(f"without {name}: {failure}")
            continue
        started[name] = process
    return started


def _summary(row: Row) -> str:
    if row["ours_us"] is None:
        return "FAILED"
    text = f"{microseconds(row['ours_us'])} us a step, floor {microseconds(row['floor_us'])} ({row['floor_by']})"
    if row["best_peer"] is not None and row["ratio"] is not None:
        text += f"; {row['ratio']:.2f}x {row['best_peer']}"
    return text if row["checked"] else text + "; WRONG"
