"""Values that the rooms exchange."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

Array = Any  # a numpy array, or a torch tensor on the CPU: anything numpy can view without a copy


class LayerWeights(NamedTuple):
    """The parameters of one layer in one direction (or their gradients; None where there is none or none is wanted).

    Shapes: H hidden, I input, P = proj_size or H, Gi input gates, Gr recurrent gates; blocks of H rows in gate order.
    """

    w_ih: Array | None  # [Gi*H, I]
    w_hh: Array | None  # [Gr*H, P]; None if no gate takes the recurrent product
    b_ih: Array | None = None  # [Gi*H]
    b_hh: Array | None = None  # [Gr*H]
    w_hr: Array | None = None  # [P, H]; only with a projection
    vectors: tuple[Array | None, ...] = ()  # each [H]
    scales: tuple[Array | None, ...] = ()  # float32 [rows, groups] of w_hh and w_hr where these are int8; see narrow.py


@dataclass(frozen=True)
class Rows:
    """How the rows of x and y map to time and batch.

    Rows are time-major and without padding: step t holds the first ``batch_sizes[t]`` sequences, so sequences are ordered by
    decreasing length, as in a PackedSequence.

    Attributes:
        steps: T, the length of the longest sequence.
        batch: B.
        batch_sizes: int64 [T], not increasing; None if every sequence has T steps.
        restart: uint8 [num_rows]; nonzero where the state is dropped before this row is processed (in processing order).
        restart_to_initial: a restarted row continues from its initial state instead of zero.
        reverse: process step T-1 first; y stays in input order.
    """

    steps: int
    batch: int
    batch_sizes: Array | None = None
    restart: Array | None = None
    restart_to_initial: bool = False
    reverse: bool = False

    @cached_property
    def num_rows(self) -> int:
        if self.batch_sizes is None:
            return self.steps * self.batch
        return int(self.batch_sizes.sum())


@dataclass(frozen=True)
class Available:
    """What this installation can run, beside what the CPU can: what a plan needs to know of the runtime.

    Attributes:
        threads: that a call may use.
        library: path of the native engine; empty if there is none.
        isas: instruction sets that the native engine was built for, best first.
        no_library: why there is no native engine, and what to do.
        compiler: path of the C++ compiler for user cells; empty if there is none.
        no_compiler: why user cells cannot be compiled, and what to do.
    """

    threads: int = 1
    library: str = ""
    isas: tuple[str, ...] = ()
    no_library: str = "this installation has no native engine"
    compiler: str = ""
    no_compiler: str = "no C++ compiler was found"
