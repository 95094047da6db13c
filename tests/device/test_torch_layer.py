"""PyTorch's own implementation behind our arguments: what the GPU falls back to, tried on the CPU."""

import pytest
import torch

from prnn import cells
from prnn.ops import cpu, key_of, torch_layer
from prnn.ops.arguments import Layer
from prnn.problem import Problem

STEPS, BATCH, SIZE, HIDDEN = 5, 4, 3, 6
KINDS = [cells.rnn_tanh, cells.rnn_relu, cells.lstm, cells.gru]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("form", ["plain", "lengths", "packed", "no steps"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("cell", KINDS, ids=lambda cell: cell.name)
def test_agrees_with_the_engine(cell, direction, form):
    proj_size = 2 if cell is cells.lstm else 0
    problem, count = Problem(cell, SIZE, HIDDEN, proj_size), 2 if direction == "both" else 1
    x = torch.randn(0 if form == "no steps" else STEPS, BATCH, SIZE)
    states = [torch.randn(count, BATCH, width) for width in problem.state_sizes]
    weights = [torch.randn(shape) * 0.3 for _ in range(count) for shape in problem.weight_shapes.values()]
    config = Layer(key_of(cell), SIZE, HIDDEN, proj_size, True, direction, False)
    lengths = batch_sizes = None
    if form == "lengths":
        lengths = torch.tensor([3, 0, 5, 1])
    if form == "packed":
        batch_sizes = torch.tensor([4, 3, 3, 1, 1])
        x = torch.randn(12, SIZE)
    y, ends = torch_layer.run(cell, x, states, weights, config, batch_sizes, lengths)
    want, want_ends, _ = cpu.run(x, states, weights, batch_sizes, lengths, None, config, False)
    torch.testing.assert_close(y, want)
    for end, wanted in zip(ends, want_ends):
        torch.testing.assert_close(end, wanted)


@pytest.mark.parametrize("wants_gradient", [True, False])
def test_a_gradient_in_eval_mode_asks_for_training_without_dropout(wants_gradient, monkeypatch):
    """cuDNN has no backward pass without the flag; dropout acts between layers, outside of this."""
    taken, run = [], torch_layer._FUNCTIONS[cells.gru]
    monkeypatch.setitem(torch_layer._FUNCTIONS, cells.gru, lambda *each: taken.append(each) or run(*each))
    weights = [torch.randn(shape) for shape in Problem(cells.gru, SIZE, HIDDEN).weight_shapes.values()]
    config = Layer(key_of(cells.gru), SIZE, HIDDEN, 0, True, "forward", False)
    x, states = torch.randn(STEPS, BATCH, SIZE), [torch.zeros(1, BATCH, HIDDEN)]
    with torch.set_grad_enabled(wants_gradient):
        torch_layer.run(cells.gru, x, states, weights, config, None, None)
        torch_layer.run(cells.gru, x, states, weights, config, None, torch.tensor([5, 3, 2, 1]))
    for padded, packed in [taken]:
        assert padded[5:7] == (0.0, wants_gradient) and packed[6:8] == (0.0, wants_gradient)


def test_what_it_refuses():
    assert torch_layer.refuse(cells.lstm, False) is None
    assert torch_layer.refuse(cells.lstm, True) == "it knows no reset"
    assert torch_layer.refuse(cells.mgu, False) == "it has rnn_tanh, rnn_relu, lstm, gru, not mgu"
