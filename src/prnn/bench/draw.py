"""Charts of rows: how many times as fast as the best peer, and microseconds a step above the floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from prnn.bench.gpu.suites import FALLBACK
from prnn.bench.rows import Row
from prnn.bench.text import microseconds
from prnn.errors import MissingDependency, PrnnError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

MOST = 4.0  # the ratio where colours end, either way
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
LINES = {"prnn": "-o", "best peer": "--s", "floor": ":"}


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write ``{suite}-{threads}-ratio.png`` and ``{suite}-{threads}-step.png`` for every suite and number of threads.

    Rows of networks become ``{suite}-{threads}-networks.png``. A row whose result was not right, or that this library failed, is left out.

    Returns:
        The files written.

    Raises:
        MissingDependency: there is no matplotlib.
        PrnnError: the folder does not exist.
    """
    if find_spec("matplotlib") is None:
        raise MissingDependency('charts need matplotlib: install with  pip install "persistent-rnn[bench]"')
    if not folder.is_dir():
        raise PrnnError(f"cannot draw into {folder}: there is no such folder")
    rows = [row for row in rows if row["checked"]]
    written = []
    for suite, threads in sorted({(row["suite"], row["threads"]) for row in rows}):
        chosen = [row for row in rows if (row["suite"], row["threads"]) == (suite, threads)]
        named = [row for row in chosen if "network" in row]
        grid = [row for row in chosen if "network" not in row]
        figures = {"networks": networks(named)} if named else {}
        figures |= {"ratio": ratios(grid), "step": steps(grid)} if grid else {}
        for name, figure in figures.items():
            path = folder / f"{suite}-{threads}-{name}.png"
            figure.savefig(path, format="png", dpi=110, facecolor="white")
            written.append(path)
    return written


def ratios(rows: Sequence[Row]) -> Figure:
    """A heat map over hidden size and batch for every cell and number of steps; blue where this library is ahead."""
    height = max(2.0, 0.36 * len({row["batch"] for row in rows}))
    figure = _panels(rows, _ratio_panel, "Best peer's time over prnn's (above 1: prnn is faster)", height)
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(_colours(), "RdBu"), ax=figure.axes, shrink=0.6, label="times as fast as the best peer"
    )
    ticks = (1 / MOST, 1 / 2, 1, 2, MOST)
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    return figure


def steps(rows: Sequence[Row]) -> Figure:
    """Microseconds a step over hidden size for every cell and number of steps; a colour for each batch."""
    figure = _panels(rows, _step_panel, "Time of a timestep", height=3.0)
    from matplotlib.lines import Line2D

    batches = sorted({row["batch"] for row in rows})
    marks = [Line2D([], [], color=_colour(batch, batches), linewidth=3, label=f"batch {batch}") for batch in batches]
    for label, style in LINES.items():
        (line,) = figure.axes[0].plot([], [], style, color="black", markersize=4, label=label)
        marks.append(line)
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), frameon=False)
    return figure


def networks(rows: Sequence[Row]) -> Figure:
    """A bar for every network and dtype: how many times as fast as the best peer; pale where PyTorch's own implementation ran."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["ratio"] is not None][::-1]
    figure = Figure(figsize=(11, 1.5 + 0.24 * len(rows)), layout="constrained")
    axes = figure.subplots()
    labels = [f"{row['network']}, {row['cell']} {row['hidden']}, {_arithmetic(row)}" for row in rows]
    colours = [(COLOURS[0], 0.3 if row["family"] == FALLBACK else 1.0) for row in rows]
    bars = axes.barh(range(len(rows)), [row["ratio"] or 0.0 for row in rows], color=colours)
    axes.bar_label(bars, [f" {row['ratio']:.2f} {_short(row['best_peer'] or '')}" for row in rows], fontsize=7)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="times as fast as the best peer", ylim=(-0.6, len(rows) - 0.4))
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.margins(x=0.2)
    figure.suptitle(f"Best peer's time over prnn's\n{rows[0]['device']}, {rows[0]['commit']}" if rows else "")
    return figure


def _arithmetic(row: Row) -> str:
    return f"{row['dtype']} {row['math']}".strip()


def _panels(rows: Sequence[Row], panel: Callable[[Axes, list[Row]], None], title: str, height: float) -> Figure:
    """A figure with a column for every cell and a line for every dtype, pass and number of steps; each as the rows first name it."""
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys(row["cell"] for row in rows))
    modes = list(dict.fromkeys(map(_mode, rows)))
    figure = Figure(figsize=(1.5 + 4 * len(cells), 1.2 + height * len(modes)), layout="constrained")
    grid = figure.subplots(len(modes), len(cells), squeeze=False)
    dtypes = list(dict.fromkeys(map(_arithmetic, rows)))
    for line, (arithmetic, pass_, num_steps) in zip(grid, modes):
        what = (
            "streaming, one step a call"
            if (pass_, num_steps) == ("forward", 1)
            else f"{pass_}, {num_steps} steps a call"
        )
        for axes, cell in zip(line, cells):
            key = (arithmetic, pass_, num_steps)
            panel(axes, [row for row in rows if row["cell"] == cell and _mode(row) == key])
            axes.set_title(f"{cell}, {f'{arithmetic}, ' if len(dtypes) > 1 else ''}{what}", fontsize=10)
    threads = rows[0]["threads"]
    where = [rows[0]["device"]]
    if rows[0]["suite"].startswith("cpu"):
        where.append(f"{threads} thread{'s' if threads > 1 else ''}")
    where += [rows[0]["dtype"]] if len(dtypes) == 1 else []
    figure.suptitle(f"{title}\n{', '.join([*where, rows[0]['commit']])}")
    return figure


def _mode(row: Row) -> tuple[str, str, int]:
    return _arithmetic(row), row["pass"], row["steps"]


def _ratio_panel(axes: Axes, rows: list[Row]) -> None:
    import numpy as np

    hiddens, batches = (sorted({row[key] for row in rows}) for key in ("hidden", "batch"))
    table = np.full((len(batches), len(hiddens)), np.nan)
    for row in rows:
        if row["ratio"] is None:
            continue
        place = batches.index(row["batch"]), hiddens.index(row["hidden"])
        if row["family"] == FALLBACK:
            axes.text(*place[::-1], "not ours", ha="center", va="center", fontsize=7, color="grey")
            continue
        table[place] = row["ratio"]
        dark = not 1 / 2 < row["ratio"] < 2
        text = f"{row['ratio']:.2f}\n{_short(row['best_peer'] or '')}"
        axes.text(*place[::-1], text, ha="center", va="center", fontsize=7, color="white" if dark else "black")
    axes.imshow(table, cmap="RdBu", norm=_colours(), aspect="auto", origin="lower")
    axes.set(xlabel="hidden size (units)", ylabel="batch (sequences)")
    axes.set_xticks(range(len(hiddens)), [str(each) for each in hiddens])
    axes.set_yticks(range(len(batches)), [str(each) for each in batches])


def _short(peer: str) -> str:
    """A peer's name without what all algorithms of cuDNN have in common."""
    for part in ("cudnn_", "persist_", "static_"):
        peer = peer.removeprefix(part)
    return peer


def _step_panel(axes: Axes, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: row["hidden"])
    batches = sorted({row["batch"] for row in rows})
    for batch in batches:
        chosen = [row for row in rows if row["batch"] == batch]
        hiddens = [row["hidden"] for row in chosen]
        values = {
            "prnn": [(row["ours_us"] if row["family"] != FALLBACK else None) or float("nan") for row in chosen],
            "best peer": [min(row["peers"].values(), default=float("nan")) for row in chosen],
            "floor": [row["floor_us"] for row in chosen],
        }
        for label, style in LINES.items():
            axes.plot(hiddens, values[label], style, color=_colour(batch, batches), markersize=4, linewidth=1.3)
    hiddens = sorted({row["hidden"] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="hidden size (units)", ylabel="time (µs a step)")
    axes.set_xticks(hiddens, [str(each) for each in hiddens])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: microseconds(value))
    axes.grid(alpha=0.3)


def _colours() -> LogNorm:
    from matplotlib.colors import LogNorm

    return LogNorm(1 / MOST, MOST)


def _colour(batch: int, batches: Sequence[int]) -> str:
    return COLOURS[batches.index(batch) % len(COLOURS)]
