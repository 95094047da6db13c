"""What the demo found, and whether it is as it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prnn.demo.clips import Clip

Floats = npt.NDArray[np.float32]

LIMIT = 1e-4  # of every difference
SPEECH = 0.5  # a window with at least this probability counts as speech


@dataclass(frozen=True)
class Measurement:
    """One variant of a row.

    Attributes:
        microseconds: median time per step over the rounds.
        quartiles: first and third quartile of the same.
        difference: largest absolute difference of its output from torch.nn in float64.
    """

    microseconds: float
    quartiles: tuple[float, float]
    difference: float


@dataclass(frozen=True)
class Row:
    """One network in one mode.

    Attributes:
        network: what it is for.
        layers: its recurrent layers and their sizes.
        mode: how many steps a call takes.
        steps: length of the sequence.
        rounds: how often each variant was timed.
        variants: by name: prnn, torch.nn, onnxruntime.
    """

    network: str
    layers: str
    mode: str
    steps: int
    rounds: int
    variants: dict[str, Measurement]

    @property
    def speedup(self) -> float:
        """How many times as fast as torch.nn prnn is."""
        return self.variants["torch.nn"].microseconds / self.variants["prnn"].microseconds


@dataclass(frozen=True)
class Check:
    """A largest absolute difference between two ways to the same numbers."""

    what: str
    difference: float

    @property
    def passed(self) -> bool:
        """Not so for a difference that is no number."""
        return self.difference <= LIMIT


@dataclass(frozen=True)
class Result:
    """Everything that is printed and drawn.

    Attributes:
        clips: C recordings.
        similarity: [C, C] cosine of the clips' speaker embeddings.
        speech: for each clip, the probability of speech in each window [T].
        seconds_per_window: length of such a window.
        end_to_end: whole networks with prnn's layers against the same without prnn.
        rows: the recurrent layers alone, differences and times.
    """

    clips: list[Clip]
    similarity: Floats
    speech: list[Floats]
    seconds_per_window: float
    end_to_end: list[Check]
    rows: list[Row]

    def failures(self) -> list[str]:
        """A sentence for each thing that is not as it should be; empty if the demo succeeded."""
        checks = list(self.end_to_end)
        for row in self.rows:
            for name, measured in row.variants.items():
                checks.append(Check(f"{row.network}, {row.mode}: {name} and torch.nn in float64", measured.difference))
        wrong = [f"{check.what}: they differ by {check.difference:.1e}, more than {LIMIT:.0e}" for check in checks]
        slow = [
            f"{row.network}, {row.mode}: prnn takes {1 / row.speedup:.2f} times as long as torch.nn"
            for row in self.rows
            if row.speedup < 1
        ]
        return [text for check, text in zip(checks, wrong, strict=True) if not check.passed] + slow

    def as_json(self) -> dict[str, Any]:
        """The same as plain data; times in seconds or microseconds as named."""
        return {
            "clips": [
                {
                    "name": clip.name,
                    "seconds": clip.seconds,
                    "speech_probability": [round(float(value), 6) for value in speech],
                }
                for clip, speech in zip(self.clips, self.speech, strict=True)
            ],
            "seconds_per_window": self.seconds_per_window,
            "similarity": [[round(float(value), 6) for value in line] for line in self.similarity],
            "end_to_end": [{"what": check.what, "difference": check.difference} for check in self.end_to_end],
            "timings": [
                {
                    "network": row.network,
                    "layers": row.layers,
                    "mode": row.mode,
                    "steps": row.steps,
                    "batch": 1,
                    "threads": 1,
                    "rounds": row.rounds,
                    "variants": {
                        name: {
                            "microseconds_per_step": measured.microseconds,
                            "quartiles": list(measured.quartiles),
                            "difference_from_float64": measured.difference,
                        }
                        for name, measured in row.variants.items()
                    },
                }
                for row in self.rows
            ],
            "difference_limit": LIMIT,
            "failures": self.failures(),
        }
