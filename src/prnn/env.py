"""The settings that come from the environment. Nothing else in the package reads os.environ."""

from __future__ import annotations

import os
from pathlib import Path

from prnn.errors import PrnnError


def cache_dir() -> Path:
    """The folder for compiled cells and kernels: PRNN_CACHE_DIR, else ``prnn`` under XDG_CACHE_HOME, else ``~/.cache/prnn``.

    The folder is not created.
    """
    chosen = os.environ.get("PRNN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "prnn"


def num_threads() -> int | None:
    """PRNN_NUM_THREADS, or None if it is not set.

    Raises:
        PrnnError: it is not a positive whole number.
    """
    text = os.environ.get("PRNN_NUM_THREADS")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise PrnnError(f"PRNN_NUM_THREADS must be a whole number of at least 1, got {text!r}")
    return int(text)


def compile_forbidden() -> bool:
    """True if PRNN_NO_COMPILE is set to anything but 0: cells that are not built in then run interpreted, kernels come
    from the cache."""
    return os.environ.get("PRNN_NO_COMPILE", "0") not in ("", "0")


def with_threads(count: int) -> dict[str, str]:
    """The environment of a child process in which numerical libraries, this one included, use `count` threads."""
    names = ("PRNN_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(count))}
