"""The demo from end to end."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import torch

from prnn.demo import fetch, progress, recurrent
from prnn.demo.clips import Clip, load_clips
from prnn.demo.compare import contests, measure, one_thread
from prnn.demo.draw import draw
from prnn.demo.mel import partial_utterances
from prnn.demo.result import Check, Floats, Result
from prnn.demo.speaker import SpeakerEncoder, embed
from prnn.demo.text import report
from prnn.demo.voice_activity import (
    SECONDS_PER_WINDOW,
    VoiceActivity,
    published_probability,
    speech_probability,
    windows_of,
)
from prnn.errors import PrnnError


def run(picture: Path, data: str | None) -> int:
    """Run both networks on the clips, print or write what they say, and compare the engines.

    Args:
        picture: PNG to write.
        data: file to write the result to as JSON; ``-`` prints it in place of the text; None does neither.

    Returns:
        0, or 1 if a difference is too large or prnn is slower than torch.nn.
    """
    for path in (picture, Path(data or "-")):
        if not path.parent.is_dir():
            raise PrnnError(f"cannot write {path}: there is no folder {path.parent}")
    result = gather()
    progress.line(f"[5/5] drawing {picture}")
    draw(result, picture)
    document = json.dumps(result.as_json(), indent=1)
    if data == "-":
        print(document)
    else:
        print("\n" + report(result))
        if data is not None:
            Path(data).write_text(document + "\n", encoding="utf-8")
    return 1 if result.failures() else 0


def gather() -> Result:
    """Everything but the output."""
    progress.line("[1/5] getting the two published networks")
    speaker_file = fetch.fetch(fetch.SPEAKER, progress.detail)["pretrained.pt"]
    voice_file = fetch.fetch(fetch.VOICE_ACTIVITY, progress.detail)["silero_vad_16k_sequence.onnx"]
    clips = load_clips()

    progress.line(f"[2/5] speaker encoder over {len(clips)} clips")
    plain_encoder = SpeakerEncoder.load(speaker_file)
    encoder = copy.deepcopy(plain_encoder)
    progress.detail(recurrent.accelerate(encoder))
    embeddings = np.stack([embed(encoder, clip) for clip in clips])
    plain = np.stack([embed(plain_encoder, clip) for clip in clips])

    progress.line(f"[3/5] voice-activity detector over {sum(clip.seconds for clip in clips):.0f} s of sound")
    plain_detector = VoiceActivity.load(voice_file)
    detector = copy.deepcopy(plain_detector)
    progress.detail(recurrent.accelerate(detector))
    speech = [speech_probability(detector, clip) for clip in clips]
    published = [published_probability(voice_file, clip) for clip in clips]

    progress.line("[4/5] the recurrent layers by prnn, torch.nn and onnxruntime, taking turns")
    longest = max(clips, key=lambda clip: clip.seconds)
    with one_thread():
        rows = measure(
            contests("speaker encoder", plain_encoder.lstm, partial_utterances(longest.samples)[0])
            + contests("voice activity", plain_detector.lstm, _detector_input(plain_detector, longest)),
            progress.bar,
        )
    return Result(
        clips=clips,
        similarity=embeddings @ embeddings.T,
        speech=speech,
        seconds_per_window=SECONDS_PER_WINDOW,
        end_to_end=[
            Check("speaker embedding: with prnn and with torch.nn", float(np.abs(embeddings - plain).max())),
            Check(
                "speech probability: with prnn and from the published ONNX file by onnxruntime",
                max(float(np.abs(a - b).max()) for a, b in zip(speech, published, strict=True)),
            ),
        ],
        rows=rows,
    )


def _detector_input(detector: VoiceActivity, clip: Clip) -> Floats:
    """What the detector's LSTM reads of a clip, [T, I]."""
    with torch.inference_mode():
        features: Floats = detector.features(torch.from_numpy(windows_of(clip.samples))).numpy()
    return features
