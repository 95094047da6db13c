"""Every pair of arguments of the three layers against torch.nn in float64: outputs, final states, all gradients."""

import itertools
import random

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import prnn
from prnn.cells import sigmoid, tanh
from twins import assert_same, states_for, twins

CHOICES = {
    "kind": ["RNN", "LSTM", "GRU"],
    "form": ["batched", "unbatched", "packed", "packed unsorted"],
    "num_layers": [1, 2],
    "bias": [True, False],
    "batch_first": [True, False],
    "bidirectional": [True, False],
    "variant": [False, True],  # relu for RNN, a projection for LSTM
    "state": [True, False],
}
SIZES = st.fixed_dictionaries(
    {
        "hidden_size": st.integers(2, 70),
        "input_size": st.integers(1, 70),
        "batch": st.integers(1, 70),
        "steps": st.integers(1, 40),
        "seed": st.integers(0, 2**30),
    }
)
ARGUMENTS = st.sampled_from([dict(zip(CHOICES, values)) for values in itertools.product(*CHOICES.values())])
SETTINGS = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def compare(choice, size):
    """Raise AssertionError where prnn and torch.nn differ."""
    torch.manual_seed(size["seed"])
    batch, hidden_size = size["batch"], size["hidden_size"]
    steps = min(size["steps"], max(300 // batch, 1))  # long or wide, not both: time is short
    extra = {}
    if choice["variant"] and choice["kind"] == "RNN":
        extra["nonlinearity"] = "relu"
    if choice["variant"] and choice["kind"] == "LSTM":
        extra["proj_size"] = max(1, hidden_size // 3)
    flags = {name: choice[name] for name in ("bias", "batch_first", "bidirectional")}
    theirs, ours = twins(choice["kind"], size["input_size"], hidden_size, choice["num_layers"], **flags, **extra)
    torch.manual_seed(size["seed"])
    packed = choice["form"].startswith("packed")
    if choice["form"] == "unbatched":
        shape, batch = (steps, size["input_size"]), None
    elif choice["batch_first"] and not packed:
        shape = (batch, steps, size["input_size"])
    else:
        shape = (steps, batch, size["input_size"])
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    if packed:
        lengths = torch.randint(1, steps + 1, (batch,))
        lengths[torch.randint(batch, ())] = steps
        if choice["form"] == "packed":
            lengths = lengths.sort(descending=True)[0]
        whole = pack_padded_sequence(x.detach(), lengths, enforce_sorted=choice["form"] == "packed")
        x = PackedSequence(whole.data.requires_grad_(), *whole[1:])
    hx = states_for(ours, batch, requires_grad=True) if choice["state"] else None
    # sums of up to 70 * 40 * 70 products in another order
    assert_same(ours, theirs, (x, hx), tolerance=1e-10)


def covering():
    """Choices that hold every pair of argument values between them."""
    choices = [dict(zip(CHOICES, values)) for values in itertools.product(*CHOICES.values())]
    random.Random(0).shuffle(choices)
    missing = {pair for choice in choices for pair in itertools.combinations(choice.items(), 2)}
    while missing:
        best = max(choices, key=lambda choice: len(missing & set(itertools.combinations(choice.items(), 2))))
        missing -= set(itertools.combinations(best.items(), 2))
        yield best


def test_every_pair():
    examples = SETTINGS(given(ARGUMENTS, SIZES)(compare))
    for seed, choice in enumerate(covering()):
        size = {"hidden_size": 5 + seed, "input_size": 3, "batch": 4, "steps": 7, "seed": seed}
        examples = example(choice, size)(examples)
    examples()


def test_swapped_gates_are_noticed(monkeypatch):
    """The comparison is able to fail: an LSTM whose input and forget gates changed places."""

    @prnn.cell(states=["h", "c"], gates=["i", "f", "g", "o"])
    def mutant(i, f, g, o, h, c):
        c = sigmoid(i) * c + sigmoid(f) * tanh(g)
        return sigmoid(o) * tanh(c), c

    monkeypatch.setattr(prnn.nn.LSTM, "cell", mutant)

    @settings(SETTINGS, max_examples=3, phases=[Phase.generate])
    @given(ARGUMENTS, SIZES)
    def examples(choice, size):
        compare(choice | {"kind": "LSTM"}, size)

    with pytest.raises(AssertionError, match="not close"):
        examples()
