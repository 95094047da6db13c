"""The only place of the package that reads the process environment."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The folder for files that can be had again: ``$XDG_CACHE_HOME/persistent-rnn``, by default under ``~/.cache``.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG Base Directory Specification asks. The folder may not exist yet.
    """
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = configured if configured.is_absolute() else Path.home() / ".cache"
    return base / "persistent-rnn"
