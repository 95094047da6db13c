"""Workload: what one row of a GPU's suites measures, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prnn.bench.rows import Row

CELLS = ("rnn_tanh", "lstm", "gru")
HALF, SINGLE = ("fp16", "bf16"), "fp32"
MATHS = ("tf32", "ieee")


@dataclass(frozen=True)
class GpuWorkload:
    """The forward pass of a layer, or of a stack of them, from zero state.

    Attributes:
        dtype: ``fp16``, ``bf16`` or ``fp32``.
        math: of fp32: ``tf32`` or ``ieee``; else empty.
        timing: ``device``: of the GPU, between two events behind a sleep; ``wall``: of the caller, who waits for the result; ``graph``:
            the same for the replay of a CUDA graph.
        network: whose sizes these are; empty for a row of a grid.
    """

    cell: str
    dtype: str
    math: str
    hidden: int
    batch: int
    steps: int
    input: int
    layers: int = 1
    directions: int = 1
    projection: int = 0
    timing: str = "device"
    network: str = ""

    # attribute -> words of `--rows`
    WORDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "cell": CELLS,
        "dtype": (*HALF, SINGLE),
        "math": MATHS,
        "timing": ("device", "wall", "graph"),
    }

    @property
    def output(self) -> int:
        """Width of one direction's output."""
        return self.projection or self.hidden

    @property
    def arithmetic(self) -> str:
        """The dtype, with how float32 is multiplied: ``fp16``, ``bf16``, ``fp32 tf32`` or ``fp32 ieee``."""
        return f"{self.dtype} {self.math}".strip()

    def __str__(self) -> str:
        more = f" L={self.layers}" if self.layers > 1 else ""
        more += " bidirectional" if self.directions == 2 else ""
        more += f" P={self.projection}" if self.projection else ""
        timing = "" if self.timing == "device" else f", {self.timing}"
        name = f"{self.network}: " if self.network else ""
        return f"{name}{self.cell} {self.arithmetic} H={self.hidden} B={self.batch} T={self.steps}{more}{timing}"


def suite_name(suite: str, workload: GpuWorkload) -> str:
    """The row's suite: what is replayed from a graph is compared only with graphs, so it has a suite of its own."""
    return f"{suite}_graph" if workload.timing == "graph" else suite


_TELLING = ("cell", "dtype", "math", "hidden", "batch", "steps", "input", "layers", "directions", "projection")


def key_of(row: Row) -> tuple[object, ...]:
    """What tells the rows of a suite apart."""
    values = dict(row)
    return (row["suite"], *(values[name] for name in _TELLING), row.get("network", ""))


def key(suite: str, workload: GpuWorkload) -> tuple[object, ...]:
    """`key_of` the row that `workload` makes."""
    return (suite_name(suite, workload), *(getattr(workload, name) for name in _TELLING), workload.network)
