"""All that the demo asks of prnn's public interface."""

from __future__ import annotations

import torch

import prnn
import prnn.nn


def accelerate(model: torch.nn.Module) -> str:
    """Let prnn run the model's recurrent layers; says in words what was swapped."""
    return str(prnn.accelerate(model))


def like(lstm: torch.nn.LSTM) -> prnn.nn.LSTM:
    """prnn's layer with the sizes and weights of torch.nn's."""
    layer = prnn.nn.LSTM(lstm.input_size, lstm.hidden_size, num_layers=lstm.num_layers, batch_first=lstm.batch_first)
    layer.load_state_dict(lstm.state_dict())
    return layer.eval()


def stream(layer: prnn.nn.LSTM) -> prnn.Stream:
    """Run a layer one step at a time for one sequence, its state kept inside."""
    return prnn.Stream(layer)


def limit_threads(count: int | None) -> None:
    """Threads that prnn's layers and streams made from now on may use; None: the default."""
    prnn.set_num_threads(count)
