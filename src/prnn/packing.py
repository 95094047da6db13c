"""Rows without padding: which rows of a padded [T, B] batch hold data, in the order in which the engine reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prnn.specs import Rows

Array = Any


@dataclass(frozen=True)
class Packing:
    """A padded batch as packed rows.

    Attributes:
        rows: one `Rows` for each direction asked for.
        index: int64 [num_rows]; packed row r is row ``index[r]`` of the padded batch seen as [T*B, ...]; None: all rows, in place.
        order: int64 [B]; the sequences by decreasing length; None: as they are.
    """

    rows: tuple[Rows, ...]
    index: Array | None = None
    order: Array | None = None


def pack(
    steps: int,
    batch: int,
    directions: tuple[bool, ...],
    lengths: Array | None = None,
    reset: Array | None = None,
    restart_to_initial: bool = False,
) -> Packing:
    """Pack a padded [steps, batch] batch.

    Args:
        directions: for each direction whether it is the reverse one.
        lengths: int [batch]; valid steps of each sequence.
        reset: bool [steps, batch]; True puts a boundary between t-1 and t.

    Raises:
        ValueError: a length is negative or beyond `steps`, or a shape is wrong.
    """
    if lengths is not None:
        lengths = check_lengths(lengths, steps, batch)
        if (lengths == steps).all():
            lengths = None
    if reset is not None and reset.shape != (steps, batch):
        raise ValueError(f"reset must have shape {(steps, batch)} (steps, batch), got {tuple(reset.shape)}")
    index = order = batch_sizes = None
    longest = steps
    if lengths is not None:
        order = np.argsort(-lengths, kind="stable")
        longest = int(lengths.max(initial=0))
        valid = lengths[order] > np.arange(longest)[:, None]  # [longest, B]
        batch_sizes = valid.sum(1)
        step, place = np.nonzero(valid)
        index = step * batch + order[place]
    rows = []
    for reverse in directions:
        restart = None if reset is None else _restart(reset, lengths, index, reverse)
        rows.append(Rows(longest, batch, batch_sizes, restart, restart_to_initial, reverse))
    return Packing(tuple(rows), index, order)


def check_lengths(lengths: Array, steps: int, batch: int) -> Array:
    """`lengths` as an int64 array [batch].

    Raises:
        ValueError: the shape is wrong, or a length is negative or beyond `steps`.
        TypeError: the lengths are not integers.
    """
    lengths = np.asarray(lengths)
    if lengths.dtype.kind not in "iu" and lengths.size:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths must hold one number for each of the {batch} sequences, got shape {lengths.shape}")
    wrong = np.flatnonzero((lengths < 0) | (lengths > steps))
    if wrong.size:
        raise ValueError(
            f"lengths[{wrong[0]}] = {lengths[wrong[0]]} is not between 0 and the {steps} steps of the input"
        )
    return lengths.astype(np.int64)


def check_batch_sizes(batch_sizes: Array, num_rows: int, batch: int) -> None:
    """Refuse batch sizes (int64 [T], as in a PackedSequence) that do not describe `num_rows` rows of `batch` sequences.

    Raises:
        ValueError: they do not.
    """
    total = int(batch_sizes.sum())
    bounds = np.concatenate([[batch], batch_sizes, [0]])
    if total != num_rows or (np.diff(bounds) > 0).any():
        raise ValueError(
            f"batch_sizes must not increase, start at most at the {batch} sequences and sum to the {num_rows} rows of the "
            f"data; they sum to {total}"
        )


def restart_rows(reset: Array, lengths: Array | None, reverse: bool) -> Array:
    """uint8 [T*B]: where the state is dropped before a row of the padded batch is processed.

    Args:
        reset: bool [T, B].
        lengths: int64 [B] or None.

    """
    return _restart(reset, lengths, None, reverse)


def _restart(reset: Array, lengths: Array | None, index: Array | None, reverse: bool) -> Array:
    """uint8 [num_rows]: where the state is dropped before a row is processed."""
    restart = np.array(reset, dtype=np.uint8)
    if reverse:  # the boundary between t-1 and t is met on the way to t-1
        restart[:-1] = restart[1:]
        restart[-1:] = 0
        if lengths is not None:
            started = np.flatnonzero(lengths)
            restart[lengths[started] - 1, started] = 0
    flat = restart.reshape(-1)
    return flat if index is None else flat[index]
