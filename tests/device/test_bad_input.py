"""Bad input raises what torch.nn raises, or says clearly what is wrong; nothing of it reaches native code."""

import pytest
import torch

import prnn
from twins import flat

KINDS = ["RNN", "LSTM", "GRU"]


def state(kind, *shape, dtype=torch.float32):
    h = torch.zeros(shape, dtype=dtype)
    return (h, h) if kind == "LSTM" else h


@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_refuses(kind):
    """The type of the error is torch.nn's own, case by case."""
    ours, theirs = (getattr(package, kind)(5, 4, 2, batch_first=True) for package in (prnn.nn, torch.nn))
    x = torch.randn(3, 6, 5)
    cases = {
        "width": (torch.randn(3, 6, 13),),
        "four dimensions": (torch.randn(1, 3, 6, 5),),
        "one dimension": (torch.randn(5),),
        "float64 input": (x.double(),),
        "integer input": (x.long(),),
        "complex input": (x.to(torch.complex64),),
        "layers of the state": (x, state(kind, 1, 3, 4)),
        "batch of the state": (x, state(kind, 2, 1, 4)),
        "width of the state": (x, state(kind, 2, 3, 5)),
        "2-D state": (x, state(kind, 2, 4)),
        "3-D state for unbatched input": (x[0], state(kind, 2, 1, 4)),
        "float64 state": (x, state(kind, 2, 3, 4, dtype=torch.float64)),
        "meta input": (x.to("meta"),),
    }
    for name, arguments in cases.items():
        with pytest.raises(Exception) as wanted:
            theirs(*arguments)
        with pytest.raises((ValueError, RuntimeError)) as mine:
            ours(*arguments)
        assert issubclass(mine.type, wanted.type) or issubclass(wanted.type, mine.type), name
    assert ours(x)[0].isfinite().all()


def test_state_of_the_wrong_form():
    x = torch.randn(6, 3, 5)
    h = torch.zeros(1, 3, 4)
    for hx, error in (((h, h, h), RuntimeError), (h, TypeError), ((h,), RuntimeError), ((h, None), TypeError)):
        with pytest.raises(error):
            prnn.nn.LSTM(5, 4)(x, hx)
    for hx in ((h, h), "h", [h]):
        with pytest.raises(TypeError):
            prnn.nn.GRU(5, 4)(x, hx)
    with pytest.raises(RuntimeError, match="same device"):
        prnn.nn.GRU(5, 4)(x, h.to("meta"))


def test_weights_of_the_wrong_shape_or_dtype():
    x = torch.randn(6, 3, 5)
    for replacement in (torch.randn(3, 3), torch.randn(16, 4, dtype=torch.float64), torch.randn(16, 4, device="meta")):
        layer = prnn.nn.LSTM(5, 4)
        layer.weight_hh_l0 = torch.nn.Parameter(replacement)
        with pytest.raises(RuntimeError):
            layer(x)
        with pytest.raises(RuntimeError), torch.no_grad():
            layer(x)


@pytest.mark.parametrize(
    ("lengths", "error"),
    [
        ([7, 1, 1], ValueError),
        ([-1, 1, 1], ValueError),
        ([1, 1], ValueError),
        ([[1, 1, 1]], ValueError),
        ([1.0, 2.0, 3.0], TypeError),
        ([True, False, True], TypeError),
        (torch.tensor([1, 2, 2**40]), ValueError),
        ("abc", (TypeError, ValueError)),
    ],
)
def test_lengths(lengths, error):
    layer = prnn.nn.GRU(5, 4)
    x = torch.randn(6, 3, 5)
    with pytest.raises(error):
        layer(x, lengths=lengths)
    layer(x, lengths=torch.tensor([6, 0, 3], dtype=torch.int32))


def test_options_that_exclude_each_other():
    layer = prnn.nn.GRU(5, 4)
    x = torch.randn(6, 3, 5)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [6, 2, 1])
    reset = torch.zeros(6, 3, dtype=torch.bool)
    for call in (
        lambda: layer(packed, lengths=[6, 2, 1]),
        lambda: layer(packed, reset=reset),
        lambda: layer(x[:, 0], lengths=[6]),
        lambda: layer(x, reset=reset.t()),
        lambda: layer(x, reset=reset, reset_to="random"),
    ):
        with pytest.raises(ValueError):
            call()
    for wrong in (reset.int(), [[True]]):
        with pytest.raises(TypeError):
            layer(x, reset=wrong)
    layer(x[:, 0], reset=reset[:, 0])
    prnn.nn.GRU(5, 4, batch_first=True)(x.transpose(0, 1), reset=reset.t())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_zero_batch_and_zero_time(kind, batch_first, training):
    extra = {"proj_size": 2} if kind == "LSTM" else {}
    layer = getattr(prnn.nn, kind)(3, 4, 2, batch_first=batch_first, bidirectional=True, **extra).train(training)
    width = layer.proj_size or 4
    for steps, batch in ((0, 5), (5, 0), (0, 0)):
        x = torch.randn((batch, steps, 3) if batch_first else (steps, batch, 3), requires_grad=True)
        hx = [torch.randn(4, batch, size, requires_grad=True) for size in (width, 4)[: len(layer.cell.states)]]
        y, last = layer(x, tuple(hx) if kind == "LSTM" else hx[0])
        assert y.shape == (*x.shape[:2], 2 * width)
        if steps == 0:
            assert all(torch.equal(a, b) for a, b in zip(flat(last), hx))
        gradients = torch.autograd.grad(sum(each.sum() for each in (y, *flat(last))), [*hx, *layer.parameters()])
        assert all(torch.equal(each, torch.ones_like(each) if steps == 0 else each) for each in gradients[: len(hx)])
        assert not any(each.any() for each in gradients[len(hx) :])
        with torch.no_grad():
            layer(x)
    assert layer(torch.randn(4, 2, 3))[0].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_in_its_sequence(kind):
    layer = getattr(prnn.nn, kind)(3, 4, bidirectional=True)
    x = torch.randn(5, 3, 3)
    clean = layer(x)[0]
    x[2, 1] = float("nan")
    y = layer(x)[0]
    assert torch.equal(y[:, [0, 2]], clean[:, [0, 2]])
    assert y[2:, 1, :4].isnan().all() and y[:3, 1, 4:].isnan().all() and torch.equal(y[:2, 1, :4], clean[:2, 1, :4])


def test_a_long_sequence_equals_its_chunks():
    layer = prnn.nn.LSTM(2, 3)
    x = torch.randn(200_000, 1, 2)
    with torch.no_grad():
        y, last = layer(x)
        hx = None
        for chunk in x.split(60_000):
            part, hx = layer(chunk, hx)
    assert torch.equal(part, y[-part.shape[0] :])
    assert all(torch.equal(a, b) for a, b in zip(last, hx))


def test_operator_refuses_what_would_be_read_out_of_bounds():
    layer = prnn.nn.LSTM(3, 4)
    x, h = torch.randn(5, 2, 3), torch.zeros(1, 2, 4)
    weights = [parameter.detach() for parameter in layer.parameters()]
    scalars = ("lstm", 3, 4, 0, True, "forward", False)

    def call(x=x, states=(h, h), weights=weights, sizes=None, lengths=None, scalars=scalars):
        return torch.ops.prnn.layer(x, list(states), list(weights), sizes, lengths, None, *scalars, False)

    call()
    for wrong in (
        {"x": torch.randn(5, 2, 2)},
        {"states": (h,)},
        {"states": (h, torch.zeros(1, 2, 3))},
        {"states": (torch.zeros(1, 3, 4),) * 2},
        {"weights": weights[:3]},
        {"weights": [weights[1], *weights[1:]]},
        {"scalars": ("lstm", 3, 400, 0, True, "forward", False)},
        {"lengths": torch.tensor([6, 1])},
        {"x": torch.randn(5, 3)},
        {"x": torch.randn(3, 3), "states": (torch.zeros(1, 3, 4),) * 2},
        {"x": torch.randn(5, 3), "sizes": torch.tensor([2, 2, 2])},
    ):
        with pytest.raises((RuntimeError, ValueError)):
            call(**wrong)
    y, finals, saved = torch.ops.prnn.layer(x, [h, h], weights, None, None, None, *scalars, True)
    with pytest.raises(RuntimeError, match="belong"):
        torch.ops.prnn.layer_backward(x, [h, h], weights, None, None, None, saved[1:], y, finals, *scalars, True, True)
