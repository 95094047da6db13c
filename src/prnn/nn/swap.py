"""accelerate and restore: turn a model's torch.nn recurrent modules into prnn's, in place, and back.

Only the class of a module changes. Its identity, parameters, buffers, hooks and mode stay, and with them optimizers, ties and
references from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.utils import parametrize

from prnn.nn.base import RecurrentBase
from prnn.nn.cells import CellBase, GRUCell, LSTMCell, RNNCell
from prnn.nn.layers import GRU, LSTM, RNN
from prnn.nn.quantized import Quantized
from prnn.ops.arguments import ARITHMETIC

_COUNTERPART: dict[type, type] = {
    torch.nn.RNN: RNN,
    torch.nn.LSTM: LSTM,
    torch.nn.GRU: GRU,
    torch.nn.RNNCell: RNNCell,
    torch.nn.LSTMCell: LSTMCell,
    torch.nn.GRUCell: GRUCell,
}
_OURS = (RecurrentBase, CellBase)
_RECURRENT = (torch.nn.RNNBase, torch.nn.modules.rnn.RNNCellBase)
_ORIGINAL = "_prnn_original"  # in a swapped instance: the class it had


@dataclass(frozen=True)
class Report:
    """What became of every recurrent module of a model.

    Attributes:
        swapped: (name, what it is now) of each module whose class changed.
        left: (name, reason) of each that did not.
    """

    swapped: tuple[tuple[str, str], ...]
    left: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = [f"{len(self.swapped)} swapped, {len(self.left)} left"]
        lines += [f"  swapped {name}: {what}" for name, what in self.swapped]
        lines += [f"  left    {name}: {reason}" for name, reason in self.left]
        return "\n".join(lines)


def accelerate(model: torch.nn.Module) -> Report:
    """Let prnn run every torch.nn.RNN, LSTM, GRU and cell of `model`; the model is changed in place.

    A second call changes nothing. `restore` undoes it.

    Raises:
        TypeError: `model` is not a module.
    """
    swapped, left = [], []
    for name, module in modules(model):
        if isinstance(module, _OURS):
            continue
        base = _base(module)
        reason = _why_not(module, base)
        if reason is not None:
            left.append((name, reason))
            continue
        rebase(module, _COUNTERPART[base])
        module.__dict__[_ORIGINAL] = base
        swapped.append((name, f"{path(base)} -> {path(_COUNTERPART[base])}"))
    return Report(tuple(swapped), tuple(left))


def restore(model: torch.nn.Module) -> Report:
    """Give every module of `model` that `accelerate` swapped its class back; the model is changed in place.

    Raises:
        TypeError: `model` is not a module.
    """
    swapped, left = [], []
    for name, module in modules(model):
        if not isinstance(module, _OURS):
            continue
        original = module.__dict__.pop(_ORIGINAL, None)
        if original is None:
            quantized = "prnn.quantize made its weights narrow, and the float ones are gone"
            left.append(
                (name, quantized if isinstance(module, Quantized) else "it was made by prnn.nn and not by accelerate")
            )
            continue
        swapped.append((name, f"{path(_base(module))} -> {path(original)}"))
        rebase(module, original)
    return Report(tuple(swapped), tuple(left))


def modules(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The recurrent modules and their names, each once."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
    return [
        (name or "(the model)", module)
        for name, module in model.named_modules()
        if isinstance(module, _RECURRENT) or isinstance(module, torch.jit.ScriptModule) and _scripted(module)
    ]


def _scripted(module: torch.jit.ScriptModule) -> bool:
    return getattr(module, "original_name", "") in {each.__name__ for each in _COUNTERPART}


def _base(module: torch.nn.Module) -> type:
    """The class of the module; under the class that torch.nn.utils.parametrize put over it."""
    cls = type(module)
    return cls.__bases__[0] if parametrize.is_parametrized(module) else cls


def _why_not(module: torch.nn.Module, base: type) -> str | None:
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript has compiled it; accelerate the model before torch.jit.script or trace"
    if base not in _COUNTERPART:
        return f"{path(base)} is a subclass of its own, and prnn cannot know what it changes"
    if "forward" in module.__dict__:
        return "its forward was replaced on the instance"
    for tensor in module.parameters():
        if tensor.device.type not in ("cpu", "meta"):
            return f"its parameters are on {tensor.device}; prnn has an engine for the CPU only"
        if tensor.dtype not in ARITHMETIC:
            return f"its parameters are {tensor.dtype}; prnn computes in {', '.join(map(str, ARITHMETIC))}"
    return None


def own_class(module: torch.nn.Module) -> None:
    """Make a torch.nn module one of prnn.nn for good: restore will not know it."""
    rebase(module, _COUNTERPART.get(type(module), type(module)))
    module.__dict__.pop(_ORIGINAL, None)


def rebase(module: torch.nn.Module, base: type) -> None:
    """Make `base` the class of the module; a parametrized one gets its own class again, with the same properties."""
    cls = type(module)
    if parametrize.is_parametrized(module):
        members = {
            name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__", "__doc__")
        }
        module.__class__ = type(f"Parametrized{base.__name__}", (base,), members)
    else:
        module.__class__ = base


def path(cls: type) -> str:
    module = "torch.nn" if cls.__module__ == "torch.nn.modules.rnn" else cls.__module__
    return f"{'prnn.nn' if module.startswith('prnn.nn.') else module}.{cls.__name__}"
