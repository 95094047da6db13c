"""Narrow weights: the matrices of a layer as bfloat16, or those that meet the state as int8; biases and vectors stay float32.

With ``int8`` the numbers of a group, up to GROUP neighbours of a row, are multiples of a scale: ``max|group| / 127``. The matrix that meets
the input is bfloat16 then, too: inputs come in any units, and the weights that make up for them span magnitudes that a common scale loses.
bfloat16 is kept as its bits, in int16, since numpy has no such type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prnn.specs import LayerWeights

Array = Any

KINDS = ("int8", "bfloat16")
GROUP = 32  # kernels/cpu/narrow.h: scale_group


def narrowed(weights: LayerWeights, kind: str) -> LayerWeights:
    """Float32 weights with their matrices made narrow.

    Args:
        weights: float32, numpy arrays; for the shapes see `LayerWeights`.
        kind: one of KINDS.

    Raises:
        ValueError: there is no such kind, the weights are not float32, or a matrix holds NaN or infinity.
    """
    if kind not in KINDS:
        raise ValueError(f"weights must be one of {KINDS}, got {kind!r}")
    given = {array.dtype.name for array in (*weights[:5], *weights.vectors) if array is not None}
    if given != {"float32"}:
        raise ValueError(f"only float32 weights can be narrowed, got {sorted(given)}")
    for name in ("w_ih", "w_hh", "w_hr"):
        matrix = getattr(weights, name)
        if matrix is not None and not np.isfinite(matrix).all():
            raise ValueError(
                f"{name} holds {np.count_nonzero(~np.isfinite(matrix))} numbers that are NaN or infinite, which {kind} weights cannot "
                "stand for; repair the weights first"
            )
    w_ih = None if weights.w_ih is None else _to_bfloat16(weights.w_ih)
    recurrent = [weights.w_hh, weights.w_hr]
    if kind == "bfloat16":
        w_hh, w_hr = (None if each is None else _to_bfloat16(each) for each in recurrent)
        return weights._replace(w_ih=w_ih, w_hh=w_hh, w_hr=w_hr)
    scales = tuple(None if each is None else _scales(each) for each in recurrent)
    w_hh, w_hr = (None if each is None else _to_int8(each, scale) for each, scale in zip(recurrent, scales))
    return weights._replace(
        w_ih=w_ih, w_hh=w_hh, w_hr=w_hr, scales=scales if any(each is not None for each in scales) else ()
    )


def widened(weights: LayerWeights) -> LayerWeights:
    """The float32 weights that `weights` stand for; as they are if they are not narrow."""
    scales = weights.scales or (None, None)
    matrices = zip((weights.w_ih, weights.w_hh, weights.w_hr), (None, *scales))
    w_ih, w_hh, w_hr = (_widened(matrix, scale) for matrix, scale in matrices)
    return weights._replace(w_ih=w_ih, w_hh=w_hh, w_hr=w_hr, scales=())


def kind_of(weights: LayerWeights) -> str:
    """What the matrices are kept in, in the words of `Problem.weights`; `weights` are numpy arrays."""
    matrix = weights.w_ih if weights.w_hh is None else weights.w_hh
    return "same" if matrix is None else {"int8": "int8", "int16": "bfloat16"}.get(matrix.dtype.name, "same")


def layout(name: str, shape: tuple[int, ...], kind: str) -> tuple[str, tuple[int, ...] | None]:
    """Dtype of a narrow layer's parameter (named as in `Problem.weight_shapes`), and the shape of its scales if it has some."""
    if len(shape) < 2:
        return "float32", None
    if name == "weight_ih" or kind == "bfloat16":
        return "int16", None
    return "int8", (shape[0], -(-shape[1] // GROUP))


def _scales(matrix: Array) -> Array:
    """max|group| / 127, but 1 for a group of zeros."""
    largest = np.maximum.reduceat(np.abs(matrix), np.arange(0, matrix.shape[1], GROUP), axis=1)
    scales = largest / np.float32(127)
    return np.where(scales == 0, np.float32(1), scales)


def _spread(scales: Array, columns: int) -> Array:
    """The scale of every number."""
    return np.repeat(scales, GROUP, axis=1)[:, :columns]


def _to_int8(matrix: Array, scales: Array) -> Array:
    return np.rint(matrix / _spread(scales, matrix.shape[1])).clip(-127, 127).astype(np.int8)


def _to_bfloat16(matrix: Array) -> Array:
    """The bits of the nearest bfloat16, ties to even; what would round to infinity becomes the largest."""
    bits = np.ascontiguousarray(matrix).view(np.int32)
    rounded = (bits & 0x7FFFFFFF) + 0x7FFF + ((bits >> 16) & 1)
    return ((np.minimum(rounded, 0x7F7FFFFF) | (bits & -0x80000000)) >> 16).astype(np.int16)


def _widened(matrix: Array | None, scales: Array | None) -> Array | None:
    if matrix is None or matrix.dtype.name not in ("int8", "int16"):
        return matrix
    if scales is None:
        return (matrix.astype(np.int32) << 16).view(np.float32)
    return matrix.astype(np.float32) * _spread(scales, matrix.shape[1])
