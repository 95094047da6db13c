"""The two published networks; skipped where no package index can be reached."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package)

import prnn  # noqa: E402
from prnn.demo import fetch, speaker, voice_activity  # noqa: E402
from prnn.demo.clips import Clip, load_clips  # noqa: E402


def have(package, name):
    try:
        return fetch.fetch(package)[name]
    except fetch.DownloadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def voice_file():
    return have(fetch.VOICE_ACTIVITY, "silero_vad_16k_sequence.onnx")


@pytest.fixture(scope="module")
def speaker_file():
    return have(fetch.SPEAKER, "pretrained.pt")


def test_windows_overlap_by_their_context():
    samples = np.arange(1000, dtype=np.float32)
    windows = voice_activity.windows_of(samples)
    assert windows.shape == (2, 576)
    np.testing.assert_array_equal(windows[0], np.concatenate([np.zeros(64), samples[:512]]))
    np.testing.assert_array_equal(windows[1], np.concatenate([samples[448:], np.zeros(24)]))


def test_speech_probability_is_that_of_the_published_graph(voice_file):
    detector = voice_activity.VoiceActivity.load(voice_file)
    for clip in load_clips():
        ours = voice_activity.speech_probability(detector, clip)
        np.testing.assert_allclose(ours, voice_activity.published_probability(voice_file, clip), atol=1e-5)
        assert (ours > 0.5).mean() > 0.5


def test_noise_is_not_speech(voice_file):
    noise = np.random.default_rng(0).normal(0, 0.01, 32000).astype(np.float32)
    detector = voice_activity.VoiceActivity.load(voice_file)
    assert voice_activity.speech_probability(detector, Clip("noise", noise)).max() < 0.5


def test_one_reader_sounds_like_herself(speaker_file):
    encoder = speaker.SpeakerEncoder.load(speaker_file)
    clips = {clip.name: speaker.embed(encoder, clip) for clip in load_clips()}
    for name in ("reader-2", "reader-5"):
        assert np.linalg.norm(clips[name]) == pytest.approx(1, abs=1e-5)
        assert clips["reader-1"] @ clips[name] > 0.8
    for name in ("cards-2", "goforward", "numbers"):
        assert clips["reader-1"] @ clips[name] < 0.7


def test_demo_from_end_to_end(monkeypatch, tmp_path, capsys, speaker_file, voice_file):
    for package in ("prnn.nn", "matplotlib"):
        pytest.importorskip(package)
    from prnn.demo import compare, run

    monkeypatch.setattr(compare, "ROUNDS", 1)
    monkeypatch.setattr(run, "report", lambda result: "\n".join(result.failures()))
    run.run(tmp_path / "demo.png", str(tmp_path / "demo.json"))
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "demo.json").stat().st_size > 1000
    # One round says nothing about speed.
    assert "differ" not in capsys.readouterr().out


@pytest.mark.parametrize("weights", ("int8", "bfloat16"))
def test_narrow_weights_change_little(weights, speaker_file, voice_file):
    """The same speaker is embedded within a cosine of 0.999, and speech is as probable to within 0.01."""
    encoder, detector = speaker.SpeakerEncoder.load(speaker_file), voice_activity.VoiceActivity.load(voice_file)
    narrow_encoder, narrow_detector = copy.deepcopy(encoder), copy.deepcopy(detector)
    for model in (encoder, detector):
        prnn.accelerate(model)
    for model in (narrow_encoder, narrow_detector):
        assert len(prnn.quantize(model, weights).swapped) == 1
    for clip in load_clips():
        assert speaker.embed(narrow_encoder, clip) @ speaker.embed(encoder, clip) >= 0.999
        probability = voice_activity.speech_probability(detector, clip)
        np.testing.assert_allclose(
            voice_activity.speech_probability(narrow_detector, clip), probability, rtol=0, atol=0.01
        )
