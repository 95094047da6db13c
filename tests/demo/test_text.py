"""The text of the demo, and the verdict behind its exit code."""

import dataclasses

import numpy as np
import pytest

from prnn.demo import text
from prnn.demo.clips import Clip
from prnn.demo.result import Check, Measurement, Result, Row


def row(prnn_us: float = 10.0, difference: float = 1e-7) -> Row:
    measured = {
        "prnn": Measurement(prnn_us, (prnn_us - 1, prnn_us + 1), difference),
        "torch.nn": Measurement(20.0, (19.0, 22.5), 2e-7),
        "onnxruntime": Measurement(16.0, (15.0, 17.0), 3e-7),
    }
    return Row("voice", "LSTM 2 to 3", "whole sequence in one call", 50, 25, measured)


def result(**changes) -> Result:
    clips = [Clip(name, np.zeros(16000, np.float32)) for name in ("reader-1", "reader-2", "other")]
    similarity = np.array([[1, 0.75, 0.25], [0.75, 1, 0.5], [0.25, 0.5, 1]], np.float32)
    speech = [np.full(32, share, np.float32) for share in (1, 0.5, 0)]
    return dataclasses.replace(Result(clips, similarity, speech, 0.032, [Check("a and b", 1e-6)], [row()]), **changes)


def test_matrix():
    similarity = np.array([[1, 0.25, 0.5], [0.25, 1, 0.125], [0.5, 0.125, 1]])
    assert text.matrix(["ann", "bo", "cyd"], similarity).splitlines() == [
        "             1     2     3   most like",
        "  1  ann  1.00  0.25  0.50   cyd",
        "  2  bo   0.25  1.00  0.12   ann",
        "  3  cyd  0.50  0.12  1.00   ann",
    ]


def test_likeness():
    similarity = np.array([[1, 0.8, 0.2], [0.8, 1, 0.4], [0.2, 0.4, 1]])
    sentence = text.likeness(similarity, [True, True, False])
    assert "0.80 alike" in sentence
    assert "0.30 like the others" in sentence


def test_timeline():
    half = np.repeat(np.float32([0, 1]), 8)  # 16 windows of 1/16 s: one second, speech in its second half
    quarter = np.full(4, 0.5, np.float32)
    assert text.timeline(["half", "unsure"], [half, quarter], 1 / 16).splitlines() == [
        "  seconds  0       1",
        "          |       |",
        "  half        ████    50% speech",
        "  unsure  ▄▄         100% speech",
    ]


def test_table_and_verdict():
    lines = list(text.table([row()]))
    assert "voice (LSTM 2 to 3): whole sequence in one call, 50 steps" in lines
    assert lines[2].split() == ["prnn", "10.0", "9.0", "to", "11.0", "2.00", "x", "1.0e-07"]
    assert text.verdict(result()).startswith("PASSED")


def test_report_fits_a_terminal():
    assert max(map(len, text.report(result()).splitlines())) <= 100


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": [row(prnn_us=25.0)]}, "voice, whole sequence in one call: prnn takes 1.25 times as long as torch.nn"),
        ({"rows": [row(difference=2e-4)]}, "prnn and torch.nn in float64: they differ by 2.0e-04, more than 1e-04"),
        ({"end_to_end": [Check("a and b", 0.5)]}, "a and b: they differ by 5.0e-01, more than 1e-04"),
        ({"end_to_end": [Check("a and b", float("nan"))]}, "a and b: they differ by nan"),
    ],
)
def test_failures_are_said_in_words(changes, sentence):
    (failure,) = result(**changes).failures()
    assert sentence in failure
    assert text.verdict(result(**changes)) == f"FAILED\n  {failure}"


def test_json_holds_all():
    data = result().as_json()
    assert data["failures"] == []
    assert [clip["name"] for clip in data["clips"]] == ["reader-1", "reader-2", "other"]
    assert data["timings"][0]["variants"]["prnn"]["microseconds_per_step"] == 10.0
