"""Where a measurement comes from: device, versions, commit, date."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from prnn.facts import CpuFacts

PACKAGES = ("numpy", "torch", "onnx", "onnxruntime", "openvino")


class Origin(TypedDict):
    """The same for every row of a run; keys of rows.Row."""

    device: str
    versions: dict[str, str]
    commit: str
    date: str


def origin(facts: CpuFacts) -> Origin:
    """Of this process's code and machine, now."""
    return Origin(
        device=facts.name,
        versions={"python": platform.python_version()}
        | {name: version for name in PACKAGES if (version := _version(name))},
        commit=_commit(Path(__file__).parent) or f"persistent-rnn {_version('persistent-rnn') or 'unknown'}",
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )


def _version(distribution: str) -> str:
    """The installed version, read without importing the package; empty if there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _commit(folder: Path) -> str:
    """The commit that the package's files come from, with a + if they were changed since; empty outside a work tree."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    if not git("ls-files", "--", "origin.py"):  # an environment inside somebody else's work tree
        return ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "..")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
