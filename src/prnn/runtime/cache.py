"""What lies in the cache: kernels of the GPU and users' cells, one folder each; read, listed and removed without loading any of it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prnn import env
from prnn.runtime.cpu.compiler import ISA_FLAGS

UNFINISHED = ".building-"  # folders that a compiler is still writing, or that were left behind
_UNFINISHED_SECONDS = 3600.0  # younger ones may belong to another process


@dataclass(frozen=True)
class Entry:
    """One compiled kernel or cell.

    Attributes:
        kind: ``kernel`` or ``cell``.
        name: family, cell and hidden size of a kernel; a cell's name.
        arch: what it was compiled for; empty if unknown.
        size: bytes on disk.
        modified: seconds since the epoch.
        seconds: that the compiler took; None if unknown.
        local_bytes: of a thread, which are there if registers were spilled; None if unknown.
        broken: why it cannot be used; empty if it can.
    """

    path: Path
    kind: str
    name: str
    arch: str
    size: int
    modified: float
    seconds: float | None = None
    local_bytes: int | None = None
    broken: str = ""


def entries() -> list[Entry]:
    """Everything in the cache, the newest first; what cannot be read is broken."""
    found = [kernel(each) for each in _folders("kernels")] + [_cell(each) for each in _folders("cells")]
    return sorted(found, key=lambda each: (-each.modified, each.path))


def remove(chosen: Iterable[Entry]) -> list[Entry]:
    """Delete entries; those that are gone afterwards. What another process may still be writing stays."""
    gone = []
    for each in chosen:
        if each.path.name.startswith(UNFINISHED) and time.time() - each.modified < _UNFINISHED_SECONDS:
            continue
        if each.path.is_dir() and not each.path.is_symlink():
            shutil.rmtree(each.path, ignore_errors=True)
        else:
            try:
                each.path.unlink(missing_ok=True)
            except OSError:
                continue
        if not each.path.exists():
            gone.append(each)
    return gone


def _folders(room: str) -> list[Path]:
    try:
        return list((env.cache_dir() / room).iterdir())
    except OSError:
        return []


def kernel(path: Path) -> Entry:
    """A kernel by its folder, which need not exist."""
    name, _, arch = path.name.rpartition("-")[0].rpartition("-")
    try:
        code = (path / "kernel.cubin").read_bytes()
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        arch, seconds, log = str(meta["arch"]), float(meta["seconds"]), str(meta["log"])
        broken = "" if meta["sha256"] == hashlib.sha256(code).hexdigest() else "kernel.cubin is not what was compiled"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _broken(path, "kernel", name, arch, error)
    frames = [int(each) for each in re.findall(r"(\d+) bytes stack frame", log)]
    return Entry(path, "kernel", name, arch, _size(path), _modified(path), seconds, max(frames, default=None), broken)


def _cell(path: Path) -> Entry:
    base = path.name.rpartition("-")[0]
    arch = max((isa for isa in ISA_FLAGS if base.endswith(f"-{isa}")), key=len, default="")
    name = base.removesuffix(f"-{arch}")
    try:
        with (path / "cell.so").open("rb") as library:
            broken = "" if library.read(1) else "cell.so is empty"
    except OSError as error:
        return _broken(path, "cell", name, arch, error)
    return Entry(path, "cell", name, arch, _size(path), _modified(path), broken=broken)


def _broken(path: Path, kind: str, name: str, arch: str, error: Exception) -> Entry:
    reason = "unfinished" if path.name.startswith(UNFINISHED) else f"{type(error).__name__}: {error}"
    return Entry(path, kind, name or path.name, arch, _size(path), _modified(path), broken=reason)


def _size(path: Path) -> int:
    total = 0
    for each in [path, *path.rglob("*")]:
        try:
            total += each.stat().st_size if each.is_file() else 0
        except OSError:
            continue
    return total


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
