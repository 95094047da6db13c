"""Narrow weights: the matrices of a layer as int8 with a scale for each row, or as bfloat16; biases and vectors stay float32.

A row of int8 stands for its numbers times ``max|row| / 127``. bfloat16 is kept as its bits, in int16, since numpy has no such type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from prnn.specs import LayerWeights

Array = Any

DTYPES = {"int8": "int8", "bfloat16": "int16"}  # kind -> dtype of the arrays


def narrowed(weights: LayerWeights, kind: str) -> LayerWeights:
    """Float32 weights with their matrices made narrow; contiguous numpy arrays.

    Args:
        weights: float32, numpy arrays; for the shapes see `LayerWeights`.
        kind: ``int8`` or ``bfloat16``.

    Raises:
        ValueError: there is no such kind, the weights are not float32, or a matrix holds NaN or infinity.
    """
    if kind not in DTYPES:
        raise ValueError(f"weights can be narrowed to {tuple(DTYPES)}, got {kind!r}")
    given = {array.dtype.name for array in (*weights[:5], *weights.vectors) if array is not None}
    if given != {"float32"}:
        raise ValueError(f"only float32 weights can be narrowed, got {sorted(given)}")
    for name, matrix in zip(LayerWeights._fields, weights[:5]):
        if matrix is not None and matrix.ndim == 2 and not np.isfinite(matrix).all():
            raise ValueError(
                f"{name} holds {np.count_nonzero(~np.isfinite(matrix))} numbers that are NaN or infinite, which {kind} cannot scale; "
                "repair the weights first"
            )
    if kind == "bfloat16":
        return _with_matrices(weights, _to_bfloat16)._replace(scales=())
    scales = tuple(None if each is None else _row_scales(each) for each in (weights.w_ih, weights.w_hh, weights.w_hr))
    return _with_matrices(weights, _to_int8)._replace(scales=scales)


def widened(weights: LayerWeights) -> LayerWeights:
    """The float32 weights that `weights` stand for; as they are if they are not narrow."""
    kind = kind_of(weights)
    if kind == "same":
        return weights
    if kind == "bfloat16":
        return _with_matrices(weights, lambda bits: (bits.astype(np.int32) << 16).view(np.float32))
    ih, hh, hr = weights.scales

    def wide(matrix: Array | None, scale: Array | None) -> Array | None:
        return None if matrix is None or scale is None else matrix.astype(np.float32) * scale[:, None]

    return weights._replace(
        w_ih=wide(weights.w_ih, ih), w_hh=wide(weights.w_hh, hh), w_hr=wide(weights.w_hr, hr), scales=()
    )


def kind_of(weights: LayerWeights) -> str:
    """What the matrices are kept in, in the words of `Problem.weights`; `weights` are numpy arrays."""
    matrix = weights.w_hh if weights.w_ih is None else weights.w_ih
    return next((kind for kind, dtype in DTYPES.items() if matrix is not None and matrix.dtype.name == dtype), "same")


def _with_matrices(weights: LayerWeights, convert: Callable[[Array], Array]) -> LayerWeights:
    def each(matrix: Array | None) -> Array | None:
        return None if matrix is None else convert(matrix)

    return weights._replace(w_ih=each(weights.w_ih), w_hh=each(weights.w_hh), w_hr=each(weights.w_hr))


def _row_scales(matrix: Array) -> Array:
    """max|row| / 127, but 1 for a row of zeros."""
    scales = np.abs(matrix).max(1) / np.float32(127)
    return np.where(scales == 0, np.float32(1), scales)


def _to_int8(matrix: Array) -> Array:
    return np.rint(matrix / _row_scales(matrix)[:, None]).clip(-127, 127).astype(np.int8)


def _to_bfloat16(matrix: Array) -> Array:
    """The bits of the nearest bfloat16, ties to even; what would round to infinity becomes the largest."""
    bits = np.ascontiguousarray(matrix).view(np.int32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    magnitude = np.minimum(rounded & 0x7FFFFFFF, 0x7F7FFFFF)
    return ((magnitude | (bits & -0x80000000)) >> 16).astype(np.int16)
