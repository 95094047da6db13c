"""The demo's result as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prnn.demo.clips import SAMPLE_RATE, Clip
from prnn.demo.result import SPEECH, Floats, Result

SHOWN = ("reader-2", "cards-2")  # one of the reader's and one of the others', with a pause each
WAVE, VOICE = "#7f7f7f", "#0072b2"
VARIANTS = {"prnn": "#0072b2", "torch.nn": "#d55e00", "onnxruntime": "#999999"}


def draw(result: Result, path: Path) -> None:
    """Write a PNG: speech under two waveforms, who sounds like whom, and times relative to torch.nn."""
    figure = Figure(figsize=(13, 9), layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=[1, 0.7, 3.2])
    for column, name in enumerate(SHOWN):
        index = [clip.name for clip in result.clips].index(name)
        upper = figure.add_subplot(grid[0, column])
        lower = figure.add_subplot(grid[1, column], sharex=upper)
        _speech(upper, lower, result.clips[index], result.speech[index], result.seconds_per_window)
    _similarity(figure.add_subplot(grid[2, 0]), result)
    _times(figure.add_subplot(grid[2, 1]), result)
    figure.savefig(path, format="png", dpi=120)


def _speech(upper: Axes, lower: Axes, clip: Clip, speech: Floats, seconds_per_window: float) -> None:
    upper.plot(np.arange(len(clip.samples)) / SAMPLE_RATE, clip.samples, color=WAVE, linewidth=0.4)
    upper.set(title=f"Speech in “{clip.name}”", ylabel="amplitude", xlim=(0, clip.seconds))
    upper.tick_params(labelbottom=False)
    edges = np.arange(len(speech) + 1) * seconds_per_window
    lower.stairs(speech, edges, fill=True, color=VOICE, alpha=0.5)
    lower.axhline(SPEECH, color="black", linewidth=0.6, linestyle=":")
    lower.set(xlabel="time in s", ylabel="probability\nof speech", ylim=(0, 1.05), yticks=[0, 0.5, 1])


def _similarity(axes: Axes, result: Result) -> None:
    names = [clip.name for clip in result.clips]
    axes.imshow(result.similarity, cmap="Blues", vmin=0.3, vmax=1)
    for (row, column), value in np.ndenumerate(result.similarity):
        colour = "white" if value > 0.75 else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_title("Who sounds like whom: cosine of speaker embeddings")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)


def _times(axes: Axes, result: Result) -> None:
    height = 0.8 / len(VARIANTS)
    for offset, (name, colour) in enumerate(VARIANTS.items()):
        for position, row in enumerate(result.rows):
            measured, base = row.variants[name], row.variants["torch.nn"].microseconds
            y, length = position + (offset - 1) * height, measured.microseconds / base
            axes.barh(y, length, height * 0.9, color=colour, label=name if position == 0 else None)
            label = f" {measured.microseconds:.1f} µs"
            axes.text(length, y, label, va="center", fontsize=8)
    axes.set_yticks(range(len(result.rows)), [f"{row.network}\n{row.layers}\n{row.mode}" for row in result.rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title="Time per step, batch 1, one thread", xlabel="time relative to torch.nn (shorter is faster)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.1), ncols=len(VARIANTS), frameon=False)
