"""The demo's result as text for a terminal 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from prnn.demo.result import LIMIT, SPEECH, Floats, Result, Row

COLUMNS_PER_SECOND = 8
_LEVELS = " ▁▂▃▄▅▆▇█"


def report(result: Result) -> str:
    """All sections and the verdict."""
    names = [clip.name for clip in result.clips]
    readers = [name.startswith("reader") for name in names]
    sections = [
        "Who sounds like whom (1.00: the same voice)\n\n" + matrix(names, result.similarity),
        likeness(result.similarity, readers),
        "Where there is speech (the higher the block, the surer)\n\n"
        + timeline(names, result.speech, result.seconds_per_window),
        "Whole networks with prnn's layers, largest difference\n\n"
        + "\n".join(f"  {check.difference:.1e}  {check.what}" for check in result.end_to_end),
        "The recurrent layers alone: same weights, same input, batch 1, one thread\n\n" + "\n".join(table(result.rows)),
        verdict(result),
    ]
    return "\n\n".join(sections)


def matrix(names: Sequence[str], similarity: Floats) -> str:
    """Clips numbered down and across, and for each the clip it resembles most. similarity is [C, C]."""
    width = max(map(len, names))
    lines = [" " * (width + 5) + "".join(f"{i + 1:>6}" for i in range(len(names))) + "   most like"]
    others = np.where(np.eye(len(names), dtype=bool), -np.inf, similarity)
    for i, name in enumerate(names):
        values = "".join(f"{value:6.2f}" for value in similarity[i])
        lines.append(f"{i + 1:>3}  {name:<{width}}{values}   {names[int(others[i].argmax())]}")
    return "\n".join(lines)


def likeness(similarity: Floats, readers: Sequence[bool]) -> str:
    """The matrix in a sentence: one reader's clips among themselves, and with all others."""
    mine = np.asarray(readers)
    among = similarity[np.ix_(mine, mine)][~np.eye(mine.sum(), dtype=bool)].mean()
    across = similarity[np.ix_(mine, ~mine)].mean()
    return (
        f"One person reads all reader-* clips: on average {among:.2f} alike among themselves, "
        f"{across:.2f} like the others."
    )


def timeline(names: Sequence[str], speech: Sequence[Floats], seconds_per_window: float) -> str:
    """One line a clip: mean probability of speech in 1/COLUMNS_PER_SECOND s as a block, and the share of speech.

    Args:
        speech: for each clip, probabilities [T] of windows of seconds_per_window.
    """
    width = max(map(len, names))
    lines = [_blocks(probability, seconds_per_window) for probability in speech]
    longest = max(map(len, lines))
    seconds = range(-(-longest // COLUMNS_PER_SECOND) + 1)
    axis = "".join(f"{second:<{COLUMNS_PER_SECOND}}" for second in seconds)[: longest + 1].rstrip()
    ticks = "".join("|" + " " * (COLUMNS_PER_SECOND - 1) for _ in seconds)[: longest + 1].rstrip()
    text = [f"  {'seconds':<{width}}  {axis}", f"  {'':<{width}}  {ticks}"]
    for name, line, probability in zip(names, lines, speech, strict=True):
        share = float((probability >= SPEECH).mean())
        text.append(f"  {name:<{width}}  {line:<{longest}}  {share:5.0%} speech")
    return "\n".join(text)


def _blocks(probability: Floats, seconds_per_window: float) -> str:
    columns = (np.arange(len(probability)) * seconds_per_window * COLUMNS_PER_SECOND).astype(int)
    means = np.bincount(columns, probability) / np.bincount(columns)
    return "".join(_LEVELS[round(float(mean) * (len(_LEVELS) - 1))] for mean in means)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of the comparison: a heading for each network and mode, a line for each variant."""
    yield f"{'':30}{'µs per step':>12}{'25 % to 75 %':>20}{'speed':>10}{'difference':>14}"
    for row in rows:
        yield f"{row.network} ({row.layers}): {row.mode}, {row.steps} steps"
        base = row.variants["torch.nn"].microseconds
        for name, measured in row.variants.items():
            low, high = measured.quartiles
            spread = f"{low:.1f} to {high:.1f}"
            speed = f"{base / measured.microseconds:.2f} x"
            yield f"    {name:26}{measured.microseconds:12.1f}{spread:>20}{speed:>10}{measured.difference:14.1e}"
    yield ""
    yield f"Medians of {rows[0].rounds} rounds, variants taking turns. Speed: torch.nn = 1, more is faster."
    yield "Difference: largest from torch.nn in float64."


def verdict(result: Result) -> str:
    """The last lines: all well, or what is not."""
    failures = result.failures()
    if failures:
        return "FAILED\n" + "\n".join(f"  {failure}" for failure in failures)
    slowest, fastest = (pick(row.speedup for row in result.rows) for pick in (min, max))
    return (
        f"PASSED: every difference is at most {LIMIT:.0e},\n"
        f"and prnn is {slowest:.1f} to {fastest:.1f} times as fast as torch.nn in all rows."
    )
