"""Tells a person on stderr what the demo is doing."""

from __future__ import annotations

import sys

_WIDTH = 40


def line(text: str) -> None:
    """A stage begins, or something worth knowing has happened."""
    print(text, file=sys.stderr, flush=True)


def bar(share: float) -> None:
    """Draw the share done over the bar before; nothing where stderr is not a terminal."""
    if sys.stderr.isatty():
        filled = round(share * _WIDTH)
        text = f"\r  [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"
        print(text, end="\n" if share >= 1 else "", file=sys.stderr, flush=True)
