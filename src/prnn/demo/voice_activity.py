"""The voice-activity detector: the probability that somebody speaks, 31 times a second.

Sizes and conventions are those of silero-vad 6.2.3 (MIT) at 16 kHz, whose trained weights it loads. They come out of
its ONNX file: the safetensors file in the same wheel holds another training, which gives other probabilities.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime  # type: ignore[import-untyped]
import torch

from prnn.demo.clips import SAMPLE_RATE, Clip

SIZE = 128
WINDOW = 512  # samples
CONTEXT = 64  # samples of the window before
SECONDS_PER_WINDOW = WINDOW / SAMPLE_RATE
BINS = 129  # of the spectrum

_CONVOLUTIONS = {
    "conv1": "encoder.0",
    "conv2": "encoder.1",
    "conv3": "encoder.2",
    "conv4": "encoder.3",
    "final_conv": "output",
}


class VoiceActivity(torch.nn.Module):
    """Spectrum and four convolutions of each window, one LSTM layer over the windows, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = torch.nn.Conv1d(1, 2 * BINS, kernel_size=256, stride=128, bias=False)
        self.conv1 = torch.nn.Conv1d(BINS, 128, kernel_size=3, padding=1)
        self.conv2 = torch.nn.Conv1d(128, 64, kernel_size=3, stride=2, padding=1)
        self.conv3 = torch.nn.Conv1d(64, 64, kernel_size=3, stride=2, padding=1)
        self.conv4 = torch.nn.Conv1d(64, SIZE, kernel_size=3, padding=1)
        self.lstm = torch.nn.LSTM(SIZE, SIZE)
        self.final_conv = torch.nn.Conv1d(SIZE, 1, kernel_size=1)

    @classmethod
    def load(cls, path: Path) -> VoiceActivity:
        """The published network from its ``silero_vad_16k_sequence.onnx``."""
        graph = onnx.load(path).graph
        published = {value.name: onnx.numpy_helper.to_array(value) for value in graph.initializer}
        lstm = next(node for node in graph.node if node.op_type == "LSTM")
        w_ih, w_hh, biases = (_gates_for_torch(published[name][0]) for name in lstm.input[1:4])
        parameters = {"stft_conv.weight": published["stft.forward_basis_buffer"]}
        for ours, theirs in _CONVOLUTIONS.items():
            parameters |= {f"{ours}.{kind}": published[f"{theirs}.{kind}"] for kind in ("weight", "bias")}
        parameters |= {"lstm.weight_ih_l0": w_ih, "lstm.weight_hh_l0": w_hh}
        parameters |= dict(zip(("lstm.bias_ih_l0", "lstm.bias_hh_l0"), np.split(biases, 2), strict=True))
        detector = cls()
        detector.load_state_dict({key: torch.tensor(value) for key, value in parameters.items()})
        return detector.eval()

    def features(self, windows: torch.Tensor) -> torch.Tensor:
        """Windows [T, CONTEXT + WINDOW] -> what the LSTM reads, [T, SIZE]; no window depends on another."""
        padded = torch.nn.functional.pad(windows[:, None], (0, CONTEXT), mode="reflect")
        spectrum = self.stft_conv(padded)
        hidden = torch.hypot(spectrum[:, :BINS], spectrum[:, BINS:])
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            hidden = torch.relu(convolution(hidden))
        return hidden.squeeze(2)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Windows [T, CONTEXT + WINDOW] in order of time -> probability of speech [T]."""
        hidden, _ = self.lstm(self.features(windows)[:, None])
        return torch.sigmoid(self.final_conv(torch.relu(hidden).transpose(1, 2))).flatten()


def _gates_for_torch(parameter: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Blocks of 4 * SIZE rows, each from ONNX gate order (input, output, forget, cell) to torch's (i, f, c, o)."""
    blocks = parameter.reshape(-1, 4, SIZE, *parameter.shape[1:])
    return blocks[:, [0, 2, 3, 1]].reshape(parameter.shape)


def windows_of(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Cut a clip [N] into [ceil(N / WINDOW), CONTEXT + WINDOW]: zeros before its start and after its end."""
    count = -(-len(samples) // WINDOW)
    padded = np.pad(samples, (CONTEXT, count * WINDOW - len(samples)))
    return np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + WINDOW)[::WINDOW].copy()


def speech_probability(detector: VoiceActivity, clip: Clip) -> npt.NDArray[np.float32]:
    """Probability of speech [T] in each window of a clip."""
    with torch.inference_mode():
        probability: npt.NDArray[np.float32] = detector(torch.from_numpy(windows_of(clip.samples))).numpy()
    return probability


def published_probability(path: Path, clip: Clip) -> npt.NDArray[np.float32]:
    """The same from the published ``silero_vad_16k_sequence.onnx``, run whole by onnxruntime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    zero = np.zeros((1, 1, SIZE), np.float32)
    inputs = {"input": windows_of(clip.samples), "h": zero, "c": zero}
    probability: npt.NDArray[np.float32] = session.run(["speech_probs"], inputs)[0]
    return probability
