"""``prnn cache``: the compiled kernels and cells on disk."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

from prnn import engine, env
from prnn.cli.plan import add_layer_arguments, problem_of
from prnn.facts import GPUS
from prnn.kernels.gpu import Features
from prnn.runtime import cache
from prnn.runtime.cuda import driver

_DAY = 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="what is there, and whether it can be used")
    listing.add_argument("--json", action="store_true", help="the same as data")
    clearing = actions.add_parser("clear", help="remove what is there")
    clearing.add_argument(
        "--older-than", type=_days, default=0.0, metavar="DAYS", help="keep what is younger (default: remove all)"
    )
    warming = actions.add_parser("warm", help="compile the kernels of a described layer")
    add_layer_arguments(warming)
    warming.add_argument("--device", choices=GPUS, help="a GPU need not be at hand (default: the one of this machine)")


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of days, at least 0, got {text!r}")
    return days


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    if args.action == "warm":
        return _warm(args)
    found = cache.entries()
    if args.action == "list":
        print(json.dumps([_as_data(each) for each in found], indent=2) if args.json else _table(found))
        return 0
    old = [each for each in found if time.time() - each.modified >= args.older_than * _DAY]
    gone = cache.remove(old)
    print(f"removed {_sum(gone)} from {env.cache_dir()}; {len(found) - len(gone)} stay")
    if missed := len(old) - len(gone):
        print(f"prnn cache: {missed} cannot be removed, or are still being written", file=sys.stderr)
    return 1 if missed else 0


def _warm(args: argparse.Namespace) -> int:
    facts = GPUS[args.device] if args.device else driver.probe(0)
    try:
        problem = problem_of(args)
        for features in (Features(is_masked=False), Features(is_masked=True)):  # the latter for lengths and reset
            directions = 2 if args.bidirectional else 1
            plan, entry = engine.compile_gpu(problem, facts, features, args.batch, args.steps, directions, args.backend)
            print(
                f"{plan.family} ({plan.config}) for {facts.arch}{', masked' if features.is_masked else ''}: {entry.path}"
            )
    except ValueError as error:  # sizes and names that make no sense together
        print(f"prnn cache: {error}", file=sys.stderr)
        return 2
    return 0


def _table(entries: list[cache.Entry]) -> str:
    header = ("kind", "name", "arch", "KiB", "date", "compiled in", "state")
    rows = [header, *map(_row, entries)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*(lines if entries else []), f"{_sum(entries)} in {env.cache_dir()}"])


def _row(entry: cache.Entry) -> tuple[str, ...]:
    spills = f"spills {entry.local_bytes} bytes a thread" if entry.local_bytes else "good"
    return (
        entry.kind,
        entry.name,
        entry.arch,
        f"{entry.size / 1024:.0f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified)),
        "" if entry.seconds is None else f"{entry.seconds:.1f} s",
        f"broken: {entry.broken}" if entry.broken else spills,
    )


def _sum(entries: list[cache.Entry]) -> str:
    count = len(entries)
    return f"{count} {'entry' if count == 1 else 'entries'}, {sum(each.size for each in entries) / 2**20:.1f} MiB"


def _as_data(entry: cache.Entry) -> dict[str, Any]:
    return {**dataclasses.asdict(entry), "path": str(entry.path)}
