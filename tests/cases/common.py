"""What the cases share: twins of torch.nn layers, tolerances, child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import prnn
from cases import faults

ROOT = Path(__file__).parents[2]
KINDS = ("RNN", "LSTM", "GRU")
DTYPES = (torch.float32, torch.float64)
# docs/numerics.md: outputs absolute, gradients relative to the largest of each
OUTPUT = {torch.float32: 1e-5, torch.float64: 1e-12}
GRADIENT = {torch.float32: 1e-4, torch.float64: 1e-10}


def twins(kind: str, *args: Any, dtype: torch.dtype = torch.float64, **kwargs: Any) -> tuple[Any, Any]:
    """prnn's layer, and torch.nn's in float64 with the same weights: the reference."""
    ours = getattr(prnn.nn, kind)(*args, **kwargs, dtype=dtype)
    theirs = getattr(torch.nn, kind)(*args, **kwargs, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def states_for(layer: Any, batch: int, dtype: torch.dtype = torch.float64) -> Any:
    """Random initial states of a batch, in the form that the layer takes."""
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    h = torch.randn(count, batch, layer.proj_size or layer.hidden_size, dtype=dtype)
    return (h, torch.randn(count, batch, layer.hidden_size, dtype=dtype)) if layer.mode == "LSTM" else h


def flat(value: Any) -> list[Tensor]:
    """The tensors of a nested result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return [value.data]
    return [tensor for each in value for tensor in flat(each)]


def assert_outputs(got: Any, wanted: Any) -> None:
    """Nested results are close to the reference's."""
    pairs = list(zip(flat(got), flat(wanted), strict=True))
    for mine, reference in pairs:
        assert mine.shape == reference.shape
        torch.testing.assert_close(mine.double(), reference.double(), rtol=0, atol=OUTPUT[mine.dtype])


def assert_gradients(got: Any, wanted: Any) -> None:
    """Gradients are close to the reference's, relative to the largest of each."""
    for mine, reference in zip(flat(got), flat(wanted), strict=True):
        assert mine.shape == reference.shape
        scale = float(reference.detach().abs().max()) if reference.numel() else 0.0
        torch.testing.assert_close(
            mine.double(), reference.double(), rtol=0, atol=GRADIENT[mine.dtype] * max(scale, 1.0)
        )


def python(code: str, *args: str, timeout: float = 120, cwd: Path | None = None, **env: str | None) -> str:
    """What a fresh interpreter prints that runs `code`, with the fault of the calling test if one is injected.

    Args:
        env: changes to the environment; None removes a variable.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    for name, value in env.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    result = subprocess.run(
        [sys.executable, "-c", faults.prelude() + code, *args],
        env=environment, cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stderr}"
    return result.stdout.strip()
