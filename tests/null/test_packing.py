"""Packing arithmetic, and prnn.run on numpy alone."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

import prnn
from prnn import reference
from prnn.cells import BUILTIN
from prnn.packing import check_batch_sizes, pack
from prnn.problem import Problem


def test_packed_rows_are_those_of_a_packed_sequence():
    """Time-major, without padding, the longest sequence first; ties keep their order."""
    packing = pack(4, 3, (False, True), np.array([2, 4, 2]))
    assert packing.order.tolist() == [1, 0, 2]
    forward, reverse = packing.rows
    assert forward.batch_sizes.tolist() == [3, 3, 1, 1] and not forward.reverse and reverse.reverse
    assert packing.index.tolist() == [1, 0, 2, 4, 3, 5, 7, 10]
    assert forward.num_rows == 8


def test_full_lengths_need_no_packing():
    packing = pack(4, 3, (False,), np.array([4, 4, 4]))
    assert packing.index is None and packing.rows[0].batch_sizes is None


def test_empty_sequences():
    packing = pack(4, 2, (False,), np.array([0, 0]))
    assert packing.rows[0].steps == 0 and packing.index.size == 0
    assert pack(0, 2, (False,)).rows[0].num_rows == 0
    assert pack(4, 0, (False,), np.array([], dtype=np.int64)).rows[0].num_rows == 0


def test_restarts():
    reset = np.array([[True, False], [False, True], [True, False]])
    forward, reverse = pack(3, 2, (False, True), np.array([3, 2]), reset).rows
    assert forward.restart.tolist() == [1, 0, 0, 1, 1]
    assert reverse.restart.tolist() == [0, 1, 1, 0, 0]  # a boundary before t is met on the way to t-1
    assert reset.tolist() == [[True, False], [False, True], [True, False]]


@pytest.mark.parametrize("lengths", [[5, 1], [-1, 1], [1], [[1, 1]], [1, 1, 1]])
def test_wrong_lengths(lengths):
    with pytest.raises(ValueError):
        pack(4, 2, (False,), np.array(lengths))


def test_wrong_types_and_shapes():
    with pytest.raises(TypeError):
        pack(4, 2, (False,), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="reset"):
        pack(4, 2, (False,), None, np.zeros((2, 4), bool))
    for sizes, rows, batch in (([2, 3], 5, 3), ([3, 2], 6, 3), ([3, 2], 5, 2), ([3, -1], 2, 3)):
        with pytest.raises(ValueError, match="batch_sizes"):
            check_batch_sizes(np.array(sizes), rows, batch)


def weights_for(cell, rng, proj_size=0, dtype=np.float64):
    problem = Problem(cell, 3, 5, proj_size)
    arrays = {name: rng.standard_normal(shape).astype(dtype) * 0.4 for name, shape in problem.weight_shapes.items()}
    members = [arrays.get(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]
    return prnn.LayerWeights(*members, tuple(arrays[vector] for vector in cell.vectors)), problem


@pytest.mark.parametrize("name", BUILTIN)
def test_run_equals_the_reference(name):
    cell, rng = BUILTIN[name], np.random.default_rng(0)
    weights, problem = weights_for(cell, rng)
    x = rng.standard_normal((6, 4, 3))
    h0 = [rng.standard_normal((4, width)) for width in problem.state_sizes]
    reset = rng.random((6, 4)) < 0.3
    for lengths, boundary, target, reverse in itertools.product(
        (None, [5, 0, 6, 2]), (None, reset), ("zero", "initial"), (False, True)
    ):
        options = {"lengths": lengths, "reset": boundary, "reverse": reverse}
        y, finals = prnn.run(cell, x, weights, h0, reset_to=target, **options)
        wanted, last = reference.layer(cell, x, weights, h0, reset_to_initial=target == "initial", **options)
        np.testing.assert_allclose(y, wanted, atol=1e-13)
        for mine, right in zip(finals, last):
            np.testing.assert_allclose(mine, right, atol=1e-13)
    zero = [np.zeros_like(state) for state in h0]
    np.testing.assert_array_equal(prnn.run(cell, x, weights)[0], prnn.run(cell, x, weights, zero)[0])


def test_run_with_projection_float32_and_any_strides():
    cell, rng = prnn.cells.lstm, np.random.default_rng(1)
    weights, _ = weights_for(cell, rng, 2, np.float32)
    x = rng.standard_normal((4, 6, 3)).astype(np.float32).transpose(1, 0, 2)
    y, (h, c) = prnn.run(cell, x, weights)
    assert y.shape == (6, 4, 2) and h.shape == (4, 2) and c.shape == (4, 5) and y.dtype == np.float32
    wanted, _ = reference.layer(cell, x.astype(float), weights, [np.zeros((4, 2)), np.zeros((4, 5))])
    np.testing.assert_allclose(y, wanted, atol=1e-6)
    for steps, batch in ((0, 4), (6, 0)):
        y, (h, _) = prnn.run(cell, np.zeros((steps, batch, 3), np.float32), weights)
        assert y.shape == (steps, batch, 2) and not h.any()


def test_run_refuses_what_does_not_fit():
    cell, rng = prnn.cells.gru, np.random.default_rng(2)
    weights, _ = weights_for(cell, rng)
    x, h = rng.standard_normal((6, 4, 3)), np.zeros((4, 5))
    for call in (
        lambda: prnn.run(cell, x[0], weights),
        lambda: prnn.run(cell, x.astype(np.float32), weights),
        lambda: prnn.run(cell, x[..., :2], weights),
        lambda: prnn.run(cell, x, weights, [h, h]),
        lambda: prnn.run(cell, x, weights, [h[:3]]),
        lambda: prnn.run(cell, x, weights, lengths=[7, 1, 1, 1]),
        lambda: prnn.run(cell, x, weights, reset=np.zeros((4, 6), bool)),
        lambda: prnn.run(cell, x, weights, reset_to="random"),
        lambda: prnn.run(cell, x, weights._replace(w_hh=None)),
        lambda: prnn.run(cell, x, weights._replace(b_hh=None)),
        lambda: prnn.run(cell, x, weights._replace(w_ih=None)),
    ):
        with pytest.raises(ValueError):
            call()


def test_import_is_light_and_torch_is_named_where_it_is_missing():
    """`import prnn` loads neither numpy nor torch; prnn.run needs no torch; prnn.nn says what to install."""
    script = """
import sys
sys.modules["torch"] = None
import prnn
assert "numpy" not in sys.modules
import numpy as np
w = prnn.LayerWeights(np.ones((4, 3)), np.ones((4, 4)))
prnn.run(prnn.cells.rnn_tanh, np.ones((2, 1, 3)), w)
for name in ("nn", "accelerate", "restore"):
    try:
        getattr(prnn, name)
    except prnn.errors.MissingDependency as error:
        assert "persistent-rnn[torch]" in str(error)
    else:
        raise AssertionError(name)
try:
    prnn.absent
except AttributeError:
    pass
"""
    subprocess.run([sys.executable, "-c", script], check=True)
