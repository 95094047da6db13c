"""What the layers are called with: checked and brought to time-major, in torch.nn's words where torch.nn has some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prnn.errors import UnsupportedProblem

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def under_autocast(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in autocast's dtype, as torch.nn's layers take them; float64 stays."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [
        each.to(dtype) if each.is_floating_point() and each.dtype is not torch.float64 else each for each in tensors
    ]


def check_input(x: Tensor, input_size: int, weight: Tensor) -> None:
    """Dtype, width and device of the input.

    Raises:
        ValueError: the dtype is not the weights'.
        RuntimeError: the width is not input_size, or the device is not the weights'.
        UnsupportedProblem: prnn has no engine for the device or dtype.
    """
    if x.dtype is not weight.dtype:
        raise ValueError(
            f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
            f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
        )
    if x.shape[-1] != input_size:
        raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {input_size}, got {x.shape[-1]}")
    if x.device != weight.device:
        raise RuntimeError(
            "Input and parameter tensors are not at the same device, found input tensor at "
            f"{x.device} and parameter tensor at {weight.device}"
        )
    if not (x.is_cpu or x.is_cuda or x.is_meta):
        raise UnsupportedProblem(
            f"prnn cannot run on {x.device}: there are engines for the CPU and for CUDA; move the layer and its input to the CPU, "
            "or undo prnn.accelerate with prnn.restore"
        )
    if x.dtype not in _DTYPES:
        raise UnsupportedProblem(f"prnn cannot compute in {x.dtype}; the layers take {', '.join(map(str, _DTYPES))}")


def check_states(
    states: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], like: Tensor, names: Sequence[str]
) -> None:
    """Shape, dtype and device of the initial states.

    Raises:
        RuntimeError: one of them does not fit.
    """
    for name, state, shape in zip(names, states, shapes):
        if state.shape != shape:
            raise RuntimeError(f"Expected {name} size {tuple(shape)}, got {list(state.shape)}")
        if state.dtype is not like.dtype:
            raise RuntimeError(
                "Input and hidden tensors are not the same dtype, found input tensor with "
                f"{like.dtype} and hidden tensor with {state.dtype}"
            )
        if state.device != like.device:
            raise RuntimeError(
                "Input and hidden tensors are not at the same device, found input tensor at "
                f"{like.device} and hidden tensor at {state.device}"
            )


def split_states(hx: Any, names: Sequence[str], owner: str) -> list[Tensor]:
    """The initial states as a list: hx is a tensor if the cell has one state, else a tuple of tensors.

    Raises:
        TypeError: it is neither.
        RuntimeError: the tuple has another length.
    """
    states = [hx] if len(names) == 1 else hx
    if not isinstance(states, (tuple, list)) or not all(isinstance(each, Tensor) for each in states):
        expected = "a tensor" if len(names) == 1 else f"a tuple of {len(names)} tensors ({', '.join(names)})"
        raise TypeError(f"{owner}: expected hx to be {expected}, got {type(hx).__name__}")
    if len(states) != len(names):
        raise RuntimeError(f"{owner}: expected {len(names)} hidden states ({', '.join(names)}), got {len(states)}")
    return list(states)


def lengths_tensor(lengths: Sequence[int] | Tensor, batch: int) -> Tensor:
    """`lengths` as int64 [B] on the CPU, or where it is during a capture; the values are checked where they are used.

    Raises:
        TypeError: they are not integers.
        ValueError: there is not one for each sequence.
    """
    tensor = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, device="cpu")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        if tensor.numel():  # torch.tensor([]) is float
            raise TypeError(f"lengths must be integers, got {tensor.dtype}")
    if tensor.shape != (batch,):
        raise ValueError(
            f"lengths must hold one number for each of the {batch} sequences, got shape {tuple(tensor.shape)}"
        )
    return tensor.to(device=_home(tensor), dtype=torch.int64)


def reset_tensor(reset: Tensor, is_batched: bool, batch_first: bool, steps: int, batch: int) -> Tensor:
    """`reset` as bool [T, B] on the CPU, or where it is during a capture.

    Raises:
        TypeError: it is not a bool tensor.
        ValueError: its shape is not that of the input's time and batch.
    """
    if not isinstance(reset, Tensor) or reset.dtype is not torch.bool:
        got = reset.dtype if isinstance(reset, Tensor) else type(reset).__name__
        raise TypeError(f"reset must be a tensor of dtype torch.bool, got {got}")
    expected = (steps,) if not is_batched else (batch, steps) if batch_first else (steps, batch)
    if reset.shape != expected:
        raise ValueError(
            f"reset must have shape {expected}, like time and batch of the input, got {tuple(reset.shape)}"
        )
    if not is_batched:
        reset = reset[:, None]
    elif batch_first:
        reset = reset.transpose(0, 1)
    return reset.to(_home(reset))


def _home(tensor: Tensor) -> torch.device:
    """The CPU, where maps of rows are made and their values are checked; but nothing comes to the CPU while a CUDA graph is captured."""
    return tensor.device if tensor.is_cuda and torch.cuda.is_current_stream_capturing() else torch.device("cpu")
