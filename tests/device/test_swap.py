"""prnn.accelerate and prnn.restore."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize, prune

import prnn
from twins import flat

KINDS = ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"]


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


class UsersLSTM(torch.nn.LSTM):
    pass


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ModuleDict({"a": torch.nn.LSTM(4, 5, 2)}))
        self.tied = self.first[1]["a"]
        self.cell = torch.nn.GRUCell(5, 5)

    def forward(self, x):
        y, _ = self.tied(self.first[0](x))
        return self.cell(y[-1])


def test_nested_and_tied_modules():
    model = Model()
    x = torch.randn(6, 2, 3)
    before, lstm = model(x), model.tied
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    calls = []
    lstm.register_forward_hook(lambda *_: calls.append(1))
    report = prnn.accelerate(model)
    assert [name for name, _ in report.swapped] == ["first.1.a", "cell"] and not report.left
    assert "2 swapped, 0 left" in str(report) and "torch.nn.LSTM -> prnn.nn.LSTM" in str(report)
    assert model.tied is lstm and model.first[1]["a"] is lstm and type(lstm) is prnn.nn.LSTM
    after = model(x)
    torch.testing.assert_close(after, before)
    assert calls == [1]
    after.sum().backward()
    optimizer.step()
    stepped = model(x)
    assert not torch.equal(stepped, after)
    second = prnn.accelerate(model)
    assert not second.swapped and not second.left
    back = prnn.restore(model)
    assert [name for name, _ in back.swapped] == ["first.1.a", "cell"]
    assert type(lstm) is torch.nn.LSTM and not [name for name in vars(lstm) if "prnn" in name]
    torch.testing.assert_close(model(x), stepped)
    assert not prnn.restore(model).swapped


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_as_the_model_itself(kind):
    for variant in [{"nonlinearity": "tanh"}, {"nonlinearity": "relu"}] if kind.startswith("RNN") else [{}]:
        module = getattr(torch.nn, kind)(3, 4, **variant)
        x = torch.randn(5, 2, 3) if "Cell" not in kind else torch.randn(2, 3)
        wanted = flat(module(x))
        assert prnn.accelerate(module).swapped[0][0] == "(the model)"
        assert type(module) is getattr(prnn.nn, kind)
        for copied in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            for mine, right in zip(flat(copied(x)), wanted):
                torch.testing.assert_close(mine, right)
            assert prnn.restore(copied).swapped and type(copied) is getattr(torch.nn, kind)


def test_parametrized_modules():
    """The dynamic class is rebuilt; adding and removing parametrizations afterwards works."""
    lstm = torch.nn.LSTM(3, 4)
    parametrize.register_parametrization(lstm, "weight_hh_l0", Doubled())
    x = torch.randn(5, 2, 3)
    fresh = copy.deepcopy(lstm)
    wanted = lstm(x)[0]
    assert prnn.accelerate(lstm).swapped and prnn.accelerate(fresh).swapped
    torch.testing.assert_close(fresh(x)[0], wanted)
    torch.testing.assert_close(copy.deepcopy(fresh)(x)[0], wanted)
    assert isinstance(lstm, prnn.nn.LSTM) and parametrize.is_parametrized(lstm)
    torch.testing.assert_close(lstm(x)[0], wanted)
    assert not prnn.accelerate(lstm).swapped
    prnn.restore(lstm)
    assert isinstance(lstm, torch.nn.LSTM)
    torch.testing.assert_close(lstm(x)[0], wanted)
    prnn.accelerate(lstm)
    parametrize.remove_parametrizations(lstm, "weight_hh_l0")
    assert type(lstm) is prnn.nn.LSTM
    torch.testing.assert_close(lstm(x)[0], wanted)
    parametrizations.weight_norm(lstm, "weight_ih_l0")
    torch.testing.assert_close(lstm(x)[0], wanted)
    prnn.restore(lstm)
    torch.testing.assert_close(lstm(x)[0], wanted)
    parametrize.remove_parametrizations(lstm, "weight_ih_l0")
    assert type(lstm) is torch.nn.LSTM


def test_what_is_left_and_why():
    replaced = torch.nn.GRU(3, 4)
    replaced.forward = lambda x: x
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(torch.nn.LSTM(3, 4))
    model = torch.nn.ModuleDict(
        {
            "users": UsersLSTM(3, 4),
            "scripted": scripted,
            "replaced": replaced,
            "complex": torch.nn.RNN(3, 4, dtype=torch.complex64),
            "made": prnn.nn.GRU(3, 4),
        }
    )
    report = prnn.accelerate(model)
    assert not report.swapped
    reasons = dict(report.left)
    assert set(reasons) == {"users", "scripted", "replaced", "complex"}
    assert "subclass" in reasons["users"] and "TorchScript" in reasons["scripted"]
    assert "forward was replaced" in reasons["replaced"] and "complex64" in reasons["complex"]
    assert dict(prnn.restore(model).left) == {"made": "it was made by prnn.nn and not by accelerate"}
    for change in (prnn.accelerate, prnn.restore):
        with pytest.raises(TypeError, match="Module"):
            change(torch.zeros(3))


def test_pruned_and_weight_normed_modules():
    lstm = torch.nn.LSTM(3, 4)
    prune.l1_unstructured(lstm, "weight_hh_l0", 0.5)
    x = torch.randn(5, 2, 3)
    wanted = lstm(x)[0]
    prnn.accelerate(lstm)
    torch.testing.assert_close(lstm(x)[0], wanted)
    lstm(x)[0].sum().backward()
    assert not (lstm.weight_hh_l0_orig.grad[lstm.weight_hh_l0_mask == 0]).any()


def test_state_dict_is_the_same_before_and_after():
    lstm = torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)
    before = copy.deepcopy(lstm.state_dict())
    prnn.accelerate(lstm)
    assert list(lstm.state_dict()) == list(before)
    lstm.load_state_dict(before)
    torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2).load_state_dict(lstm.state_dict())


@pytest.mark.filterwarnings("ignore")  # those of gymnasium and stable-baselines3
def test_recurrent_ppo_policy():
    """A recurrent PPO policy of sb3-contrib comes out fully swapped, with equal outputs over episodes that end."""
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    import gymnasium
    import numpy as np
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    box = gymnasium.spaces.Box(-1, 1, (5,), np.float32)
    policy = RecurrentActorCriticPolicy(
        box, gymnasium.spaces.Discrete(3), lambda _: 1e-3, lstm_hidden_size=32, n_lstm_layers=2
    )
    state = (torch.randn(2, 4, 32), torch.randn(2, 4, 32))
    states = RNNStates(pi=state, vf=state)
    observations, starts = torch.randn(4 * 8, 5), (torch.rand(4 * 8) < 0.2).float()
    actions = torch.randint(3, (4 * 8,))

    def run():
        values, log_probability, entropy = policy.evaluate_actions(observations, actions, states, starts)
        loss = values.sum() + log_probability.sum() + entropy.sum()
        return [values, log_probability, *torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)]

    before = run()
    report = prnn.accelerate(policy)
    recurrent = [module for module in policy.modules() if isinstance(module, torch.nn.RNNBase)]
    assert len(report.swapped) == len(recurrent) == 2 and not report.left
    assert all(type(module) is prnn.nn.LSTM for module in recurrent)
    for mine, wanted in zip(run(), before):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)
