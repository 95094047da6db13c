"""``prnn bench``: a suite of measurements beside every peer that is installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from prnn.bench.gpu.suites import GPU_SUITES
from prnn.bench.gpu.workload import GpuWorkload
from prnn.bench.suites import SUITES, selector
from prnn.bench.workload import Workload

QUICK_SECONDS = 0.2
GPU_SECONDS = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    suites = f"{', '.join(SUITES)}; on a GPU: {', '.join(GPU_SUITES)}"
    parser.add_argument("suite", choices=[*SUITES, *GPU_SUITES], metavar="SUITE", help=f"one of: {suites}")
    parser.add_argument(
        "--rows",
        default="",
        metavar="TERMS",
        help="only rows that match, as in lstm,gru,forward,H=256,T=1 (on a GPU: lstm,fp16,tf32,H=256,B=8)",
    )
    parser.add_argument(
        "--threads",
        type=_threads,
        metavar="N",
        help="CPU: threads of every library: a number or all (default: 1)",
    )
    parser.add_argument(
        "--seconds",
        type=_number,
        metavar="S",
        help=f"to spend on timing each row, all peers together (default: 3; on a GPU: {GPU_SECONDS:g})",
    )
    parser.add_argument(
        "--minutes",
        type=_number,
        metavar="M",
        help="GPU: begin no row after them; rows measured by then cover all sizes evenly",
    )
    parser.add_argument("--commit", help="GPU: of the code, where this folder is a copy without its history")
    parser.add_argument("--quick", action="store_true", help="a smoke run: the smallest rows, little time for each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows; kept up to date during the run")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="draw charts of the rows into a folder")
    parser.add_argument(
        "--check",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing: hold the rows of these files to what is asked",
    )


def _threads(text: str) -> int:
    from prnn.facts import probe_cpu

    if text == "all":
        return probe_cpu().cores
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be all or a whole number of at least 1, got {text!r}")
    return int(text)


def _number(text: str) -> float:
    try:
        if 0 < (number := float(text)) < float("inf"):
            return number
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")


def run(args: argparse.Namespace) -> int:
    """Measure and print, or check.

    Returns:
        0; 1 if a row failed or was wrong, or does not reach what is asked; 2 for a wrong selection.
    """
    is_gpu = args.suite in GPU_SUITES
    foreign = ("threads",) if is_gpu else ("minutes", "commit")
    if given := [f"--{name}" for name in foreign if getattr(args, name) is not None]:
        print(f"prnn bench: {' and '.join(given)} cannot go with the suite {args.suite}", file=sys.stderr)
        return 2
    try:
        selected = selector(args.rows, GpuWorkload.WORDS) if is_gpu else selector(args.rows)
    except ValueError as error:
        print(f"prnn bench: --rows: {error}", file=sys.stderr)
        return 2
    if is_gpu:
        return _run_gpu(args, selected)
    suite = SUITES[args.suite]
    workloads = [each for each in suite.workloads if selected(each) and (not args.quick or suite.quick(each))]
    if not workloads:
        print(f"prnn bench: no row of {suite.name} matches --rows {args.rows}", file=sys.stderr)
        return 2
    if args.check:
        return _check(args.check, workloads, selected)
    from prnn.bench.process import require

    require()
    from prnn.bench.run import run as run_suite
    from prnn.bench.text import table

    seconds = args.seconds or (QUICK_SECONDS if args.quick else 3.0)
    rows = run_suite(suite, workloads, args.threads or 1, seconds, args.json)
    print(table(rows))
    if args.draw:
        from prnn.bench.draw import draw

        for path in draw(rows, args.draw):
            print(path)
    return 0 if all(row["checked"] for row in rows) else 1


def _run_gpu(args: argparse.Namespace, selected: Callable[[GpuWorkload], bool]) -> int:
    from prnn.bench.gpu import summary

    suite = GPU_SUITES[args.suite]
    workloads = [each for each in (suite.quick if args.quick else suite.workloads) if selected(each)]
    if not workloads:
        print(f"prnn bench: no row of {suite.name} matches --rows {args.rows}", file=sys.stderr)
        return 2
    if args.check:
        from prnn.bench.gpu.workload import key, key_of
        from prnn.bench.rows import load

        wanted = {key(suite.name, each) for each in workloads}
        rows = [row for row in load(args.check) if key_of(row) in wanted]
        verdicts = sorted(summary.judge(suite.name, rows, workloads), key=lambda verdict: not verdict.passed)
        failed = sum(not verdict.passed for verdict in verdicts)
        print("\n".join([summary.text(rows), *map(str, verdicts), f"{len(verdicts) - failed} pass, {failed} fail"]))
    else:
        from prnn.bench.gpu.run import run as run_suite

        rows = run_suite(suite, workloads, args.seconds or GPU_SECONDS, args.minutes, args.json, args.commit)
        print("\n".join([summary.text(rows), *map(str, summary.landmarks(rows))]))
        failed = sum(not row["checked"] for row in rows)
    if args.draw:
        from prnn.bench.draw import draw

        for path in draw(rows, args.draw):
            print(path)
    return 1 if failed else 0


def _check(files: list[Path], workloads: list[Workload], selected: Callable[[Workload], bool]) -> int:
    """Print a line for each row of the files that is selected, failures last."""
    from prnn.bench.gate import judge_all
    from prnn.bench.rows import load, workload_of

    rows = [row for row in load(files) if selected(workload_of(row))]
    verdicts = sorted(judge_all(rows, workloads), key=lambda verdict: not verdict.passed)
    failed = sum(not verdict.passed for verdict in verdicts)
    print("\n".join([*map(str, verdicts), f"{len(verdicts) - failed} pass, {failed} fail"]))
    return 1 if failed else 0
