"""The speaker encoder's front end against first principles."""

import numpy as np
import pytest

from prnn.demo import mel
from prnn.demo.clips import SAMPLE_RATE, load_clips


def tone(hertz: float, seconds: float = 1.0, amplitude: float = 0.5) -> np.ndarray:
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (amplitude * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def test_scale_is_linear_then_logarithmic():
    np.testing.assert_allclose(mel.hz_to_mel([0, 200, 1000, 6400]), [0, 3, 15, 42])
    hertz = np.linspace(0, 8000, 100)
    np.testing.assert_allclose(mel.mel_to_hz(mel.hz_to_mel(hertz)), hertz, atol=1e-9)


def test_each_filter_has_unit_area():
    # Bins are 40 Hz apart: only where a triangle spans many of them is their sum close to the integral.
    areas = mel.mel_filters().sum(axis=1) * SAMPLE_RATE / mel.WINDOW
    np.testing.assert_allclose(areas[-15:], 1, atol=0.02)
    assert (areas > 0.4).all()


def test_filters_sum_to_the_slope_of_the_scale():
    """Where the scale is linear, neighbours add up to a triangle's height, 2 / width, at every frequency."""
    filters = mel.mel_filters()
    width = 2 * mel.mel_to_hz(mel.hz_to_mel(SAMPLE_RATE / 2) / (mel.CHANNELS + 1))
    frequency = np.fft.rfftfreq(mel.WINDOW, 1 / SAMPLE_RATE)
    inside = (frequency > width) & (frequency < 1000 - width)
    np.testing.assert_allclose(filters.sum(axis=0)[inside], 2 / width, rtol=1e-9)


@pytest.mark.parametrize("channel", [8, 15, 24, 33])
def test_a_sine_lands_in_its_channel(channel):
    corners = mel.mel_to_hz(np.linspace(0, mel.hz_to_mel(SAMPLE_RATE / 2), mel.CHANNELS + 2))
    spectrum = mel.mel_spectrogram(tone(corners[channel + 1]))[50]
    assert spectrum.argmax() == channel
    assert spectrum[[channel - 2, channel + 2]].max() < spectrum[channel] / 10


def test_power_of_a_sine():
    """A sine on a bin: amplitude * sum(window) / 2 there; Hann leaves half of this in each neighbour."""
    spectrum = mel.mel_spectrogram(tone(4000.0, amplitude=0.5))[50]
    powers = np.zeros(mel.WINDOW // 2 + 1)
    powers[99:102] = (0.5 * mel.WINDOW / 4) ** 2 * np.array([0.25, 1, 0.25])
    np.testing.assert_allclose(spectrum, mel.mel_filters() @ powers, rtol=1e-4, atol=1e-6)


def test_frames_are_centred():
    samples = np.zeros(3200, np.float32)
    samples[10 * mel.HOP] = 1
    assert mel.mel_spectrogram(samples).sum(axis=1).argmax() == 10


def test_filters_have_the_published_peak():
    """librosa 0.10's filters for these sizes peak at 0.01333."""
    assert mel.mel_filters().max() == pytest.approx(0.013329955, rel=1e-6)


def test_volume_is_only_raised():
    quiet, loud = tone(440, amplitude=0.001), tone(440, amplitude=0.9)
    level = 20 * np.log10(np.sqrt(np.mean(mel.raise_volume(quiet) ** 2)))
    assert level == pytest.approx(mel.TARGET_DBFS, abs=1e-3)
    np.testing.assert_array_equal(mel.raise_volume(loud), loud)


@pytest.mark.parametrize(
    ("seconds", "starts"), [(0.5, [0]), (1.6, [0]), (2.0, [0, 77]), (1.9, [0]), (3.2, [0, 77, 154])]
)
def test_partial_utterances_cover_the_clip(seconds, starts):
    samples = tone(440, seconds)
    assert mel.partial_starts(len(samples)) == starts
    assert mel.partial_utterances(samples).shape == (len(starts), mel.PARTIAL_FRAMES, mel.CHANNELS)


def test_clips_are_speech_at_16_khz():
    clips = load_clips()
    assert len(clips) == 9
    assert sum(clip.seconds for clip in clips) == pytest.approx(37.0, abs=0.1)
    assert all(0.05 < np.abs(clip.samples).max() <= 1 for clip in clips)
