"""The same recurrent layers, weights and input by prnn, torch.nn and onnxruntime: differences and time per step."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

import prnn.nn
from prnn.bench.onnx_session import OnnxSequence, OnnxStream
from prnn.demo import recurrent
from prnn.demo.result import Floats, Measurement, Row
from prnn.specs import LayerWeights

Runner = Callable[[], Floats]

ROUNDS = 25
STREAMED = 50  # steps of the sequence in a streaming row


@dataclass(frozen=True)
class Contest:
    """What a row is measured from: each variant computes the same y [T, H]."""

    network: str
    layers: str
    mode: str
    runners: dict[str, Runner]
    expected: npt.NDArray[np.float64]  # [T, H]


def contests(network: str, lstm: torch.nn.LSTM, x: Floats) -> list[Contest]:
    """The whole sequence x [T, I] in one call, and one call for each of its first steps; B=1, from zero state."""
    count = f", {lstm.num_layers} layers" if lstm.num_layers > 1 else ""
    layers = f"LSTM {lstm.input_size} to {lstm.hidden_size}{count}"
    batch_axis = 0 if lstm.batch_first else 1
    expected, _ = copy.deepcopy(lstm).double()(torch.from_numpy(x).double().unsqueeze(batch_axis))
    reference = expected.detach().squeeze(batch_axis).numpy()
    ours = recurrent.like(lstm)
    onnx_sequence = OnnxSequence("lstm", _weights(lstm))
    whole = {
        "prnn": _whole(ours, x, batch_axis),
        "torch.nn": _whole(lstm, x, batch_axis),
        "onnxruntime": lambda: onnx_sequence(x[:, None])[0][:, 0],
    }
    streaming = {
        "prnn": _prnn_steps(ours, x[:STREAMED]),
        "torch.nn": _torch_steps(lstm, x[:STREAMED]),
        "onnxruntime": _onnx_steps(OnnxStream("lstm", _weights(lstm)), x[:STREAMED]),
    }
    return [
        Contest(network, layers, "whole sequence in one call", whole, reference),
        Contest(network, layers, "streaming, one step a call", streaming, reference[:STREAMED]),
    ]


def _whole(layer: torch.nn.Module, x: Floats, batch_axis: int) -> Runner:
    rows = torch.from_numpy(x).unsqueeze(batch_axis)

    def run() -> Floats:
        with torch.inference_mode():
            y: Floats = layer(rows)[0].squeeze(batch_axis).numpy()
        return y

    return run


def _prnn_steps(layer: prnn.nn.LSTM, x: Floats) -> Runner:
    stream, steps = recurrent.stream(layer), np.split(x, len(x))

    def run() -> Floats:
        stream.reset()
        return np.concatenate([stream.step(step) for step in steps])

    return run


def _torch_steps(lstm: torch.nn.LSTM, x: Floats) -> Runner:
    steps = torch.from_numpy(x)[:, None, None].unbind()

    def run() -> Floats:
        state, outputs = None, []
        with torch.inference_mode():
            for step in steps:
                y, state = lstm(step, state)
                outputs.append(y[0].numpy())
        return np.concatenate(outputs)

    return run


def _weights(lstm: torch.nn.LSTM) -> list[LayerWeights]:
    def layer(k: int) -> LayerWeights:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_ih, w_hh, b_ih, b_hh = (lstm.get_parameter(f"{name}_l{k}").detach().numpy() for name in names)
        return LayerWeights(w_ih, w_hh, b_ih, b_hh)

    return [layer(k) for k in range(lstm.num_layers)]


def _onnx_steps(stream: OnnxStream, x: Floats) -> Runner:
    steps = np.split(x, len(x))

    def run() -> Floats:
        stream.reset()
        return np.concatenate([stream.step(step) for step in steps])

    return run


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """For what is made and run inside, so that engines are compared and not numbers of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recurrent.limit_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        recurrent.limit_threads(None)


def measure(contests: list[Contest], progress: Callable[[float], None]) -> list[Row]:
    """Check every variant, then time them, taking turns so that a disturbance meets all alike.

    Args:
        progress: called with the share of the work that is done.
    """
    differences = [
        {name: float(np.abs(runner() - contest.expected).max()) for name, runner in contest.runners.items()}
        for contest in contests
    ]
    times: list[dict[str, list[float]]] = [{name: [] for name in contest.runners} for contest in contests]
    for turn in range(ROUNDS):
        for contest, row in zip(contests, times, strict=True):
            for name, runner in contest.runners.items():
                start = time.perf_counter()
                runner()
                row[name].append((time.perf_counter() - start) * 1e6 / len(contest.expected))
        progress((turn + 1) / ROUNDS)
    return [
        Row(
            contest.network,
            contest.layers,
            contest.mode,
            len(contest.expected),
            ROUNDS,
            {name: _measurement(row[name], difference[name]) for name in contest.runners},
        )
        for contest, row, difference in zip(contests, times, differences, strict=True)
    ]


def _measurement(microseconds: list[float], difference: float) -> Measurement:
    low, median, high = (float(value) for value in np.percentile(microseconds, [25, 50, 75]))
    return Measurement(median, (low, high), difference)
