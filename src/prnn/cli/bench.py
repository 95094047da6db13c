"""``prnn bench``: a suite of measurements beside every peer that is installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from prnn.bench.suites import SUITES, selector
from prnn.bench.workload import Workload

QUICK_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("suite", choices=SUITES, metavar="SUITE", help=f"one of: {', '.join(SUITES)}")
    parser.add_argument(
        "--rows", default="", metavar="TERMS", help="only rows that match, as in lstm,gru,forward,H=256,T=1"
    )
    parser.add_argument(
        "--threads",
        type=_threads,
        default=1,
        metavar="N",
        help="threads of every library: a number or all (default: 1)",
    )
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="to spend on timing each row, all peers together (default: 3)"
    )
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


def _seconds(text: str) -> float:
    try:
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a number of seconds, got {text!r}")


def run(args: argparse.Namespace) -> int:
    """Measure and print, or check.

    Returns:
        0; 1 if a row failed or was wrong, or does not reach what is asked; 2 for a wrong selection.
    """
    suite = SUITES[args.suite]
    try:
        selected = selector(args.rows)
    except ValueError as error:
        print(f"prnn bench: --rows: {error}", file=sys.stderr)
        return 2
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
    rows = run_suite(suite, workloads, args.threads, seconds, args.json)
    print(table(rows))
    if args.draw:
        from prnn.bench.draw import draw

        for path in draw(rows, args.draw):
            print(path)
    return 0 if all(row["checked"] for row in rows) else 1


def _check(files: list[Path], workloads: list[Workload], selected: Callable[[Workload], bool]) -> int:
    """Print a line for each row of the files that is selected, failures last."""
    from prnn.bench.gate import judge_all
    from prnn.bench.rows import load, workload_of

    rows = [row for row in load(files) if selected(workload_of(row))]
    verdicts = sorted(judge_all(rows, workloads), key=lambda verdict: not verdict.passed)
    failed = sum(not verdict.passed for verdict in verdicts)
    print("\n".join([*map(str, verdicts), f"{len(verdicts) - failed} pass, {failed} fail"]))
    return 1 if failed else 0
