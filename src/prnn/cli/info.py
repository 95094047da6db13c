"""``prnn info``: what a bug report needs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
from importlib import metadata
from typing import Any

from prnn import engine, env
from prnn.facts import CpuRates, probe_cpu


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("--measure", action="store_true", help="what a core does at best, too: takes a second")
    parser.add_argument("--json", action="store_true", help="the same as data")


def run(args: argparse.Namespace) -> int:
    """Print the facts."""
    facts = _facts(args.measure)
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    width = max(map(len, facts))
    for key, value in facts.items():
        print(f"{key:{width}}  {_text(value)}")
    return 0


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {number:.1f}" for key, number in value.items())
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def measure() -> CpuRates:
    """What a core of this machine does at best, with progress on stderr.

    Raises:
        BuildError: the native engine, which measures it, is missing or too old.
    """
    from prnn.bench.floors import Machine, measured_rates

    return measured_rates(probe_cpu(), Machine(), lambda text: print(f"measuring: {text}", file=sys.stderr, flush=True))


def _facts(with_rates: bool) -> dict[str, Any]:
    cpu, available = probe_cpu(), engine.available()
    if with_rates:
        cpu = dataclasses.replace(cpu, rates=measure())
    return {
        "prnn": _version("persistent-rnn"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "system": platform.platform(),
        **{f"cpu_{key}": value for key, value in dataclasses.asdict(cpu).items() if value is not None},
        "native_engine": available.library or f"none: {available.no_library}",
        "native_isas": available.isas,
        "isa": next((each for each in cpu.isas if each in available.isas), "none"),
        "threads": available.threads,
        "compiler": available.compiler or f"none: {available.no_compiler}",
        "compiling": "forbidden by PRNN_NO_COMPILE" if env.compile_forbidden() else "allowed",
        "cache": str(env.cache_dir()),
    }


def _version(distribution: str) -> str:
    """The installed version, read without importing the package."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
