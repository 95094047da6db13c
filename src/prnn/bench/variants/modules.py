"""Layers with the interface of torch.nn, ours or torch's, over a whole sequence."""

from __future__ import annotations

from typing import Any

import torch

from prnn.bench.variants import Array, Variant
from prnn.bench.workload import Data, Workload

KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN"}
PARAMETERS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def make(room: Any, workload: Workload, data: Data, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The layer of a room (torch.nn or prnn.nn) with the data's weights."""
    module: torch.nn.Module = getattr(room, KINDS[workload.cell])(workload.input, workload.hidden, dtype=dtype)
    with torch.no_grad():
        for name, weight in zip(PARAMETERS, data.weights):
            module.get_parameter(name).copy_(torch.from_numpy(weight))
    return module.eval()


def sequence(module: torch.nn.Module, workload: Workload, data: Data, dtype: torch.dtype = torch.float32) -> Variant:
    """A whole sequence a call: inference, or forward and backward."""
    x = torch.from_numpy(data.x).to(dtype)
    if workload.mode == "forward":
        return Variant(lambda: _named(*_infer(module, x)), lambda: _infer(module, x))
    leaves = {"d_x": x.requires_grad_(), **{f"d_{name}": module.get_parameter(name) for name in PARAMETERS}}
    d_y = torch.from_numpy(data.d_y).to(dtype)
    inputs = list(leaves.values())

    def train() -> tuple[torch.Tensor, Any, tuple[torch.Tensor, ...]]:
        y, state = module(x)
        return y, state, torch.autograd.grad(y, inputs, d_y)

    def outputs() -> dict[str, Array]:
        y, state, gradients = train()
        return _named(y, state) | {name: gradient.numpy() for name, gradient in zip(leaves, gradients)}

    return Variant(outputs, train)


def _infer(module: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    with torch.inference_mode():
        y, state = module(x)
    return y, state


def _named(y: torch.Tensor, state: Any) -> dict[str, Array]:
    states = state if isinstance(state, tuple) else (state,)
    return {"y": y.detach().numpy()} | {name: value.detach().numpy()[0] for name, value in zip(("h_n", "c_n"), states)}
