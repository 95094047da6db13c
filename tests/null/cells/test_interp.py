"""The interpreter: every operation at its edges, over numpy and torch."""

import numpy as np
import pytest
import torch

from prnn.cells.expr import clip, greater, leaf, maximum, minimum, relu, sigmoid, tanh
from prnn.cells.interp import evaluate

A, B = leaf("a"), leaf("b")
EDGES = np.array([-np.inf, -800.0, -1.0, -0.0, 0.0, 1.0, 800.0, np.inf, np.nan])


def both(root, a, b=None):
    """The value by numpy, checked to be the value by torch."""
    leaves = {("a",): a, **({("b",): b} if b is not None else {})}
    with np.errstate(all="ignore"):
        (value,) = evaluate([root], leaves, np)
    (other,) = evaluate([root], {key: torch.from_numpy(each) for key, each in leaves.items()}, torch)
    np.testing.assert_allclose(value, other.numpy(), rtol=1e-15)
    return value


def test_sigmoid_and_tanh_saturate_without_overflow():
    np.testing.assert_array_equal(both(sigmoid(A), EDGES)[[0, 1, 3, 4, 6, 7]], [0, 0, 0.5, 0.5, 1, 1])
    np.testing.assert_array_equal(both(tanh(A), EDGES)[[0, 1, 6, 7]], [-1, -1, 1, 1])
    with np.errstate(over="raise"):
        evaluate([sigmoid(A)], {("a",): EDGES}, np)


@pytest.mark.parametrize(
    "root", [relu(A), maximum(A, 0.0), minimum(A, 0.0), clip(A, -1, 1), sigmoid(A), tanh(A)], ids=repr
)
def test_nan_stays_nan(root):
    assert np.isnan(both(root, EDGES)[-1])


def test_comparison_with_nan_is_zero():
    np.testing.assert_array_equal(both(greater(A, B), EDGES, np.zeros_like(EDGES)), [0, 0, 0, 0, 0, 1, 1, 1, 0])


def test_numbers_meet_arrays_in_either_order():
    np.testing.assert_array_equal(both(maximum(0.5, A), np.array([0.0, 1.0])), [0.5, 1.0])
    np.testing.assert_array_equal(both(greater(0.5, A), np.array([0.0, 1.0])), [1.0, 0.0])


def test_result_has_the_dtype_of_the_arrays():
    (value,) = evaluate([sigmoid(A) * 2 + maximum(A, 0.1)], {("a",): np.zeros(2, np.float32)}, np)
    assert value.dtype == np.float32
