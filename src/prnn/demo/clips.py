"""The nine speech clips that come with the package."""

from __future__ import annotations

import wave
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16000  # Hz

_FILES = {
    "reader-1": "sense_and_sensibility_01_austen_64kb-0870.wav",
    "reader-2": "sense_and_sensibility_01_austen_64kb-0880.wav",
    "reader-3": "sense_and_sensibility_01_austen_64kb-0890.wav",
    "reader-4": "sense_and_sensibility_01_austen_64kb-0920.wav",
    "reader-5": "sense_and_sensibility_01_austen_64kb-0930.wav",
    "cards-2": "cards_002.wav",
    "cards-5": "cards_005.wav",
    "goforward": "goforward.wav",
    "numbers": "numbers.wav",
}


@dataclass(frozen=True)
class Clip:
    """A mono recording.

    Attributes:
        name: short, for tables; ``reader-*`` are five cuts of one person's reading.
        samples: float32 [N] in [-1, 1) at SAMPLE_RATE.
    """

    name: str
    samples: npt.NDArray[np.float32]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def load_clips() -> list[Clip]:
    """All clips, the reader's first."""
    return [Clip(name, _read(file)) for name, file in _FILES.items()]


def _read(file: str) -> npt.NDArray[np.float32]:
    with (files("prnn.demo") / "speech" / file).open("rb") as stream, wave.open(stream) as recording:
        form = (recording.getframerate(), recording.getsampwidth(), recording.getnchannels())
        if form != (SAMPLE_RATE, 2, 1):
            raise ValueError(f"{file}: (rate, bytes per sample, channels) = {form}, not {(SAMPLE_RATE, 2, 1)}")
        pcm = np.frombuffer(recording.readframes(recording.getnframes()), dtype="<i2")
    return pcm.astype(np.float32) / np.float32(32768)
