"""Sequences of several lengths: packed input (5), padding (7), the reverse direction (8), rows without any step (9), layout (16)."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import prnn
from cases.common import DTYPES, KINDS, assert_gradients, assert_outputs, flat, states_for, twins

nan = float("nan")
MIXED = [n // 2 for n in (12, 32, 4, 52, 8, 64, 20, 36, 48, 40, 24, 60, 44, 16, 28, 56)]


def losses(y, states):
    """A number that every output enters with another weight."""
    tensors = flat([y, states])
    return sum((t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).view_as(t)).sum() for t in tensors)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [[3, 3], [3], [3, 3, 2, 1, 1], [1, 3, 2], [3] * 33])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_equals_padded(kind, bidirectional, lengths, dtype):
    ours, theirs = twins(kind, 2, 3, 2, bidirectional=bidirectional, dtype=dtype)
    x = torch.randn(3, len(lengths), 2, dtype=dtype)
    hx = states_for(ours, len(lengths), dtype)
    double = hx.double() if kind != "LSTM" else tuple(each.double() for each in hx)
    results = []
    for layer, data, initial in ((ours, x, hx), (theirs, x.double(), double)):
        packed = pack_padded_sequence(data, torch.tensor(lengths), enforce_sorted=False)
        y, states = layer(packed, initial)
        results.append((*pad_packed_sequence(y, total_length=3)[:1], states))
    assert_outputs(results[0], results[1])
    assert_outputs(ours(x, hx, lengths=lengths), results[1])
    if set(lengths) == {3}:
        assert_outputs(ours(x, hx), results[1])
    gradients = [torch.autograd.grad(losses(*each), layer.parameters()) for each, layer in zip(results, (ours, theirs))]
    assert_gradients(*gradients)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("steps", [32, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_the_padding_nor_on_the_order_of_rows(kind, steps, dtype):
    ours, theirs = twins(kind, 8, 16, bidirectional=True, dtype=dtype)
    batch, valid = len(MIXED), torch.arange(steps)[:, None] < torch.tensor(MIXED)
    clean, hx = torch.randn(steps, batch, 8, dtype=dtype), states_for(ours, batch, dtype)

    def run(layer, padding, order, call):
        x = clean.to(call).masked_fill(~valid[..., None], padding)[:, order].requires_grad_()
        initial = [each.to(call)[:, order].detach().requires_grad_() for each in flat(hx)]
        given = initial[0] if len(initial) == 1 else tuple(initial)
        lengths = [MIXED[i] for i in order]
        if layer is ours:
            y, states = layer(x, given, lengths=lengths)
        else:
            packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
            y, states = layer(packed, given)
            y = pad_packed_sequence(y, total_length=steps)[0]
        back = torch.argsort(torch.tensor(order))
        y, states = y[:, back], [state[:, back] for state in flat(states)]
        gradients = torch.autograd.grad(losses(y, states), [x, *initial, *layer.parameters()])
        return [y, *states], [
            gradients[0][:, back],
            *(g[:, back] for g in gradients[1 : 1 + len(initial)]),
            *gradients[2:][len(initial) - 1 :],
        ]

    rows = list(range(batch))
    wanted = run(theirs, 0.0, rows, torch.float64)
    first = run(ours, 0.0, rows, dtype)
    assert_outputs(first[0], wanted[0])
    assert_gradients(first[1], wanted[1])
    for padding in (1e30, nan):
        junk = [torch.full((steps * batch * 32,), nan, dtype=dtype) for _ in range(8)]  # memory that is handed out next
        del junk
        again = run(ours, padding, rows, dtype)
        assert all(map(torch.equal, flat(first), flat(again)))
        assert not again[0][0].masked_select(~valid[..., None]).any()
        assert not again[1][0].masked_select(~valid[..., None]).any()
    shuffled = run(ours, nan, torch.randperm(batch).tolist(), dtype)
    assert_outputs(shuffled[0], wanted[0])
    assert_gradients(shuffled[1], wanted[1])


@pytest.mark.parametrize("lengths", [[7, 4, 1], [3, 5], [1, 1, 1, 6]])
@pytest.mark.parametrize("kind", [*KINDS, "reset-before GRU"])
def test_reverse_starts_at_the_last_valid_step(kind, lengths):
    steps, batch = 7, len(lengths)
    options = {"reset_after": False} if kind == "reset-before GRU" else {}
    make = prnn.nn.GRU if options else getattr(prnn.nn, kind)
    both = make(9, 5, bidirectional=True, dtype=torch.float64, **options)
    forward, reverse = (make(9, 5, reverse=each, dtype=torch.float64, **options) for each in (False, True))
    for layer, suffix in ((forward, ""), (reverse, "_reverse")):
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                parameter.copy_(getattr(both, name + suffix))
    x, hx = torch.randn(steps, batch, 9, dtype=torch.float64), states_for(both, batch)

    def part(d):
        return hx[d : d + 1] if kind != "LSTM" else tuple(each[d : d + 1] for each in hx)

    y, states = both(x, hx, lengths=lengths)
    y_forward, ends = forward(x, part(0), lengths=lengths)
    y_reverse, begins = reverse(x, part(1), lengths=lengths)
    assert_outputs(y, torch.cat([y_forward, y_reverse], 2))
    assert_outputs(states, [torch.cat(pair) for pair in zip(flat(ends), flat(begins))])
    assert torch.equal(y_reverse[0], flat(begins)[0][0])  # the last state in its order is that of step 0
    flipped = make(9, 5, dtype=torch.float64, **options)
    flipped.load_state_dict({key: value for key, value in reverse.state_dict().items() if not key.startswith("_")})
    for b, length in enumerate(lengths):
        alone = [each[:, b : b + 1].contiguous() for each in flat(part(1))]
        given = alone[0] if len(alone) == 1 else tuple(alone)
        row, last = flipped(x[:length, b : b + 1].flip(0), given)
        assert_outputs(y_reverse[:length, b], row.flip(0)[:, 0])
        assert_outputs([each[:, b] for each in flat(begins)], [each[:, 0] for each in flat(last)])
        assert not y[length:, b].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [[0, 5, 0], [0, 5, 3], [0, 0, 0]])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_steps_returns_its_initial_state(kind, bidirectional, lengths, dtype):
    layer = getattr(prnn.nn, kind)(4, 6, bidirectional=bidirectional, dtype=dtype)
    x = torch.randn(5, 3, 4, dtype=dtype, requires_grad=True)
    hx = [each.requires_grad_() for each in flat(states_for(layer, 3, dtype))]
    given = hx[0] if len(hx) == 1 else tuple(hx)
    y, states = layer(x, given, lengths=lengths)
    gradients = torch.autograd.grad(losses(y, states), [x, *hx, *layer.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    without_state, zeros = layer(x, lengths=lengths)
    ends = [torch.linspace(0.5, 1.5, each.numel(), dtype=dtype).view_as(each) for each in hx]
    for b, length in enumerate(lengths):
        if length == 0:
            assert all(torch.equal(state[:, b], initial[:, b]) for state, initial in zip(flat(states), hx))
            assert not y[:, b].any() and not gradients[0][:, b].any()
            assert not any(state[:, b].any() for state in flat(zeros))
            assert all(torch.equal(gradient[:, b], end[:, b]) for gradient, end in zip(gradients[1:], ends))
        else:  # as if it were alone
            alone = [each[:, b : b + 1].detach() for each in hx]
            row, last = layer(x[:length, b : b + 1], alone[0] if len(alone) == 1 else tuple(alone))
            assert_outputs(y[:length, b : b + 1], row)
            assert_outputs([state[:, b : b + 1] for state in flat(states)], last)
    if not any(lengths):
        assert not any(gradient.any() for gradient in gradients[1 + len(hx) :])


@pytest.mark.parametrize("steps, batch", [(3, 2), (3, 3)])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_first_is_the_time_major_layer_of_transposed_input(kind, bidirectional, steps, batch):
    """With B = T no shape can reveal the error."""
    ours, theirs = twins(kind, 2, 3, 2, batch_first=True, bidirectional=bidirectional)
    major, _ = twins(kind, 2, 3, 2, bidirectional=bidirectional)
    major.load_state_dict(ours.state_dict())
    x, hx = torch.randn(batch, steps, 2, dtype=torch.float64), states_for(ours, batch)
    y, states = ours(x, hx)
    assert_outputs((y, states), theirs(x, hx))
    assert_outputs((y.transpose(0, 1), states), major(x.transpose(0, 1), hx))
    reset = torch.rand(batch, steps) < 0.5
    for options, transposed in (({"reset": reset}, {"reset": reset.T}), ({"lengths": [1] + [3] * (batch - 1)},) * 2):
        y, states = ours(x, hx, **options)
        assert_outputs((y.transpose(0, 1), states), major(x.transpose(0, 1), hx, **transposed))
