"""Exceptions and warnings of prnn."""

from __future__ import annotations


class PrnnError(Exception):
    """Base of every error that prnn raises on its own behalf.

    Bad arguments of the layers raise what ``torch.nn`` raises (ValueError, RuntimeError, TypeError) instead.
    """


class CellError(PrnnError, ValueError):
    """A cell's definition is not valid; the message names the cell and what to change."""


class UnsupportedProblem(PrnnError, RuntimeError):
    """The requested backend cannot run the problem; the message lists what was tried and why each candidate was refused."""


class BuildError(PrnnError, RuntimeError):
    """Native code could not be built; the message holds the command and the compiler's output."""


class MissingDependency(PrnnError, ImportError):
    """An optional dependency is absent; the message names the extra that installs it."""


class PrnnFallbackWarning(UserWarning):
    """A slower family runs because the preferred one cannot; shown once for each cause."""
