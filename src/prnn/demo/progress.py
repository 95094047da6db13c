"""Tells a person on stderr what the demo is doing."""

from __future__ import annotations

import sys
import textwrap

_WIDTH = 40


def line(text: str) -> None:
    """A stage begins."""
    print(text, file=sys.stderr, flush=True)


def detail(text: str) -> None:
    """Something worth knowing within a stage, of one line or more."""
    print(textwrap.indent(text, "      "), file=sys.stderr, flush=True)


def bar(share: float) -> None:
    """Draw the share done over the bar before; nothing where stderr is not a terminal."""
    if sys.stderr.isatty():
        filled = round(share * _WIDTH)
        text = f"\r      [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"
        print(text, end="\n" if share >= 1 else "", file=sys.stderr, flush=True)
