"""quantize: give a model's recurrent layers narrow weights, in place."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parametrize

from prnn.errors import UnsupportedProblem
from prnn.narrow import KINDS, narrowed
from prnn.nn.base import RecurrentBase
from prnn.nn.layers import GRU, LSTM, RNN, Recurrent
from prnn.nn.quantized import SCALE, Quantized
from prnn.nn.swap import Report, modules, own_class, path, rebase
from prnn.specs import LayerWeights

_LAYERS = (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU, RNN, LSTM, GRU, Recurrent)
_MATRICES = ("weight_ih", "weight_hh", "weight_hr")


def quantize(model: torch.nn.Module, weights: str) -> Report:
    """Keep the matrices of every recurrent layer of `model` narrow; the model is changed in place, for inference.

    Layers of torch.nn and of prnn.nn become `prnn.nn.Quantized`: their float matrices are gone, biases stay float32, and activations and
    sums are float32. Cells that are called step by step (LSTMCell and its like) are left. Nothing is changed if an error is raised.

    Args:
        weights: "bfloat16"; or "int8": the matrices that meet the state are int8 with a scale for every 32 neighbours of a row, the
            matrix that meets the input is bfloat16.

    Returns:
        What became of every recurrent module.

    Raises:
        TypeError: `model` is not a module.
        ValueError: `weights` is neither, or a matrix holds NaN or infinity.
        UnsupportedProblem: a layer is not float32, or not on the CPU.
    """
    if weights not in KINDS:
        raise ValueError(f"weights must be one of {KINDS}, got {weights!r}")
    prepared, swapped, left = [], [], []
    for name, module in modules(model):
        if isinstance(module, Quantized) and module.weights == weights:
            continue
        reason = _why_not(module)
        if reason is not None:
            left.append((name, reason))
            continue
        assert isinstance(module, torch.nn.RNNBase)
        prepared.append((module, _buffers(name, module, weights)))
        swapped.append((name, f"{path(type(module))} -> {path(Quantized)} with {weights} weights"))
    for module, buffers in prepared:
        _become(module, weights, buffers)
    return Report(tuple(swapped), tuple(left))


def _why_not(module: torch.nn.Module) -> str | None:
    if isinstance(module, Quantized):
        return f"its weights are {module.weights} already, and the float32 ones are gone"
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript has compiled it; quantize the model before torch.jit.script or trace"
    if parametrize.is_parametrized(module):
        return "its weights are computed by a parametrization; torch.nn.utils.parametrize.remove_parametrizations makes them fixed"
    if not isinstance(module, torch.nn.RNNBase):
        return f"{path(type(module))} is called for one step; only whole layers have narrow weights"
    if type(module) not in _LAYERS:
        return f"{path(type(module))} is a subclass of its own, and prnn cannot know what it changes"
    if "forward" in module.__dict__:
        return "its forward was replaced on the instance"
    if any(name not in module._parameters for names in module._all_weights for name in names):
        return "some of its weights are not parameters but computed by a hook (pruning, weight_norm); make them permanent first"
    return None


def _buffers(name: str, module: torch.nn.RNNBase, weights: str) -> dict[str, Tensor]:
    """The weights of the layer `name` as narrow buffers."""
    result: dict[str, Tensor] = {}
    for names in module._all_weights:
        tensors = {each: module._parameters[each] for each in names}
        for each, tensor in tensors.items():
            assert tensor is not None
            if tensor.device.type != "cpu" or tensor.dtype is not torch.float32:
                raise UnsupportedProblem(
                    f"{name}: {weights} weights run in float32 on the CPU, and {each} is {tensor.dtype} on {tensor.device}; "
                    "call model.float().cpu() first"
                )
        arrays = {
            each: np.ascontiguousarray(tensor.detach().numpy())
            for each, tensor in tensors.items()
            if tensor is not None
        }
        fields = {each.rsplit("_l", 1)[0]: each for each in names}
        w_ih, w_hh, w_hr = (arrays.get(fields.get(field, "")) for field in _MATRICES)
        try:
            narrow = narrowed(LayerWeights(w_ih, w_hh, w_hr=w_hr), weights)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        matrices = dict(zip(_MATRICES, (narrow.w_ih, narrow.w_hh, narrow.w_hr)))
        for field, each in fields.items():
            result[each] = torch.from_numpy(matrices[field] if field in matrices else arrays[each].copy())
        for field, scale in zip(_MATRICES[1:], narrow.scales):
            if scale is not None:
                result[fields[field] + SCALE] = torch.from_numpy(scale)
    return result


def _become(module: torch.nn.RNNBase, weights: str, buffers: dict[str, Tensor]) -> None:
    own_class(module)
    assert isinstance(module, RecurrentBase)
    cell = module.cell
    module._parameters.clear()
    rebase(module, Quantized)
    assert isinstance(module, Quantized)
    module.cell, module.weights = cell, weights
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer)
    module._init_flat_weights()
    module.pack()
