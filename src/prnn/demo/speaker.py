"""The speaker encoder: what a voice sounds like, as 256 numbers.

Sizes and conventions are those of Resemblyzer 0.1.4 (Apache-2.0), whose trained weights it loads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from prnn.demo.clips import Clip
from prnn.demo.mel import CHANNELS, partial_utterances

SIZE = 256


class SpeakerEncoder(torch.nn.Module):
    """Three LSTM layers over mel frames; the last hidden state, projected, says who speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(CHANNELS, SIZE, num_layers=3, batch_first=True)
        self.linear = torch.nn.Linear(SIZE, SIZE)

    @classmethod
    def load(cls, path: Path) -> SpeakerEncoder:
        """The published network from its ``pretrained.pt``."""
        published = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
        encoder = cls()
        # The file also holds two scalars of the training loss, which nothing here uses.
        encoder.load_state_dict({key: published[key] for key in encoder.state_dict()})
        return encoder.eval()

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Mel frames [P, T, CHANNELS] -> one embedding [P, SIZE] of unit length for each partial utterance."""
        _, (hidden, _) = self.lstm(frames)
        return torch.nn.functional.normalize(torch.relu(self.linear(hidden[-1])), dim=1)


def embed(encoder: SpeakerEncoder, clip: Clip) -> npt.NDArray[np.float32]:
    """The embedding [SIZE] of a clip: the mean over its partial utterances, scaled to unit length."""
    with torch.inference_mode():
        partials = encoder(torch.from_numpy(partial_utterances(clip.samples)))
        mean: npt.NDArray[np.float32] = torch.nn.functional.normalize(partials.mean(dim=0), dim=0).numpy()
    return mean
