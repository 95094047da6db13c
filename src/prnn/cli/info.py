"""``prnn info``: what a bug report needs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
from importlib import metadata
from typing import Any

from prnn import engine, env
from prnn.facts import probe_cpu


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("--json", action="store_true", help="the same as data")


def run(args: argparse.Namespace) -> int:
    """Print the facts."""
    facts = _facts()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    width = max(map(len, facts))
    for key, value in facts.items():
        print(f"{key:{width}}  {' '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}")
    return 0


def _facts() -> dict[str, Any]:
    cpu, available = probe_cpu(), engine.available()
    return {
        "prnn": _version("persistent-rnn"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "system": platform.platform(),
        **{f"cpu_{key}": value for key, value in dataclasses.asdict(cpu).items()},
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
