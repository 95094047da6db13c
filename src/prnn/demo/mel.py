"""Mel spectrogram and partial utterances of the speaker encoder, in numpy.

Sizes and conventions are those of Resemblyzer 0.1.4, whose spectrogram is librosa's (0.10 and later): Slaney's mel
scale with triangles of unit area, power 2, periodic Hann window, frames centred with zeros beyond the ends.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prnn.demo.clips import SAMPLE_RATE

Floats = npt.NDArray[np.float32]

WINDOW = 400  # samples, 25 ms
HOP = 160  # samples, 10 ms
CHANNELS = 40
PARTIAL_FRAMES = 160  # frames of a partial utterance, 1.6 s
PARTIAL_STEP = 77  # frames between partial utterances: 1.3 of them a second
MIN_COVERAGE = 0.75  # of the last partial utterance
TARGET_DBFS = -30.0

_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27


def hz_to_mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Slaney's scale: linear below 1 kHz, logarithmic above."""
    frequency = np.asarray(hz, dtype=np.float64)
    above = _BREAK_MEL + np.log(np.maximum(frequency, _BREAK_HZ) / _BREAK_HZ) / _LOG_STEP
    return np.where(frequency < _BREAK_HZ, frequency / _LINEAR_HZ_PER_MEL, above)


def mel_to_hz(mel: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The inverse of hz_to_mel."""
    value = np.asarray(mel, dtype=np.float64)
    above = _BREAK_HZ * np.exp(_LOG_STEP * (np.maximum(value, _BREAK_MEL) - _BREAK_MEL))
    return np.where(value < _BREAK_MEL, value * _LINEAR_HZ_PER_MEL, above)


def mel_filters() -> npt.NDArray[np.float64]:
    """Triangular filters [CHANNELS, WINDOW // 2 + 1], in 1/Hz: each has unit area over frequency."""
    corners = mel_to_hz(np.linspace(0, hz_to_mel(SAMPLE_RATE / 2), CHANNELS + 2))
    low, centre, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    frequency = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE)[None]
    rising, falling = (frequency - low) / (centre - low), (high - frequency) / (high - centre)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


def mel_spectrogram(samples: Floats) -> Floats:
    """Power in each mel channel: [N] -> [1 + N // HOP, CHANNELS]; frame t is centred on sample t * HOP."""
    padded = np.pad(samples.astype(np.float64), WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * hann)) ** 2
    return (power @ mel_filters().T).astype(np.float32)


def raise_volume(samples: Floats) -> Floats:
    """Scale a clip whose level is below TARGET_DBFS up to it; leave a louder one alone. Shape [N] is kept."""
    level = 20 * np.log10(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))
    return samples * np.float32(10 ** (max(0.0, TARGET_DBFS - level) / 20))


def partial_starts(num_samples: int) -> list[int]:
    """First frame of each partial utterance; the last is dropped if too little of it lies within the clip."""
    num_frames = num_samples // HOP + 1
    starts = list(range(0, max(1, num_frames - PARTIAL_FRAMES + PARTIAL_STEP + 1), PARTIAL_STEP))
    if len(starts) > 1 and num_samples / HOP - starts[-1] < MIN_COVERAGE * PARTIAL_FRAMES:
        starts.pop()
    return starts


def partial_utterances(samples: Floats) -> Floats:
    """What the encoder reads of a clip: [N] -> [P, PARTIAL_FRAMES, CHANNELS], zeros beyond the clip's end."""
    starts = partial_starts(len(samples))
    missing = (starts[-1] + PARTIAL_FRAMES) * HOP - len(samples)
    spectrogram = mel_spectrogram(np.pad(raise_volume(samples), (0, max(0, missing))))
    return np.stack([spectrogram[start : start + PARTIAL_FRAMES] for start in starts])
