"""Narrow weights as values: what is stored, what it stands for, what is refused."""

import numpy as np
import pytest

import prnn
from prnn import narrow
from prnn.cells import gru, lstm
from prnn.problem import Problem
from prnn.specs import LayerWeights


def weights_of(problem, seed=0):
    rng = np.random.default_rng(seed)
    named = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in problem.weight_shapes.items()}
    fields = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    return LayerWeights(*map(named.get, fields), tuple(named[name] for name in problem.cell.vectors))


def test_a_group_of_int8_is_off_by_half_its_scale_at_most():
    weights = weights_of(Problem(lstm, 5, 70, 40))
    made = narrow.narrowed(weights, "int8")
    for name, scales in zip(("w_hh", "w_hr"), made.scales):
        matrix, codes, wide = getattr(weights, name), getattr(made, name), getattr(narrow.widened(made), name)
        assert codes.dtype == np.int8 and scales.shape == (len(matrix), -(-matrix.shape[1] // 32))
        for group, scale in enumerate(scales.T):
            part = slice(32 * group, 32 * group + 32)
            assert np.abs(codes[:, part]).max(1).tolist() == [127] * len(matrix)
            np.testing.assert_allclose(scale, np.abs(matrix[:, part]).max(1) / 127, rtol=1e-6)
            assert (np.abs(wide - matrix)[:, part] <= scale[:, None] * 0.50001).all()
    assert made.w_ih.dtype == np.int16 and made.b_ih is weights.b_ih and narrow.widened(made).scales == ()


def test_bfloat16_rounds_to_nearest_even():
    torch = pytest.importorskip("torch")
    weights = weights_of(Problem(gru, 64, 64))
    hard = [1.0, -1.0, 0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3e38, -3e38, 1e-40]
    weights.w_ih[0, : len(hard)] = hard
    made = narrow.narrowed(weights, "bfloat16")
    expected = torch.from_numpy(weights.w_ih).bfloat16()
    assert np.array_equal(made.w_ih, expected.view(torch.int16).numpy())
    assert np.array_equal(narrow.widened(made).w_ih, expected.float().numpy()) and made.scales == ()
    weights.w_ih[0, 0] = -np.finfo(np.float32).max  # rounds away from zero, which would be infinity
    assert narrow.widened(narrow.narrowed(weights, "bfloat16")).w_ih[0, 0] == np.float32(-3.3895314e38)


def test_a_row_of_zeros_and_one_of_the_smallest_numbers():
    weights = weights_of(Problem(gru, 3, 2))
    weights.w_hh[0] = 0
    weights.w_hh[1] = 1e-45
    wide = narrow.widened(narrow.narrowed(weights, "int8")).w_hh
    assert not wide[:2].any() and np.isfinite(wide).all()


@pytest.mark.parametrize("kind", narrow.KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(kind, bad):
    weights = weights_of(Problem(lstm, 3, 2))
    weights.w_hh[1, 1] = bad
    with pytest.raises(ValueError, match="w_hh holds 1 numbers that are NaN or infinite"):
        narrow.narrowed(weights, kind)


def test_other_kinds_and_types_are_refused():
    weights = weights_of(Problem(lstm, 3, 2))
    with pytest.raises(ValueError, match=r"\('int8', 'bfloat16'\), got 'int4'"):
        narrow.narrowed(weights, "int4")
    with pytest.raises(ValueError, match=r"only float32 weights can be narrowed, got \['float32', 'float64'\]"):
        narrow.narrowed(weights._replace(w_hh=weights.w_hh.astype(float)), "int8")


@pytest.mark.parametrize("changed", [{"dtype": "float64"}, {"training": True}])
def test_a_problem_with_narrow_weights_is_inference_in_float32(changed):
    with pytest.raises(ValueError, match="int8 weights are for inference in float32"):
        Problem(lstm, 3, 4, weights="int8", **changed)
    with pytest.raises(ValueError, match="weights must be one of"):
        Problem(lstm, 3, 4, weights="int4")
    assert Problem(lstm, 3, 4, weights="int8") != Problem(lstm, 3, 4)


def test_scales_that_do_not_fit_are_refused():
    made = narrow.narrowed(weights_of(Problem(lstm, 3, 4)), "int8")
    x = np.zeros((2, 1, 3), np.float32)
    assert prnn.run(lstm, x, made)[0].shape == (2, 1, 4)
    for scales in ((), (made.scales[0][:3], None), (made.scales[0].astype(float), None)):
        with pytest.raises(ValueError, match="takes scales"):
            prnn.run(lstm, x, made._replace(scales=scales))
    with pytest.raises(ValueError, match="takes weights"):
        prnn.run(lstm, x, made._replace(w_hh=np.zeros((16, 4), np.float32)))
