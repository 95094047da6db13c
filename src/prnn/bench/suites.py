"""The suites, as values: which rows and which peers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from prnn.bench.workload import PASSES, Workload
from prnn.cells import BUILTIN


@dataclass(frozen=True)
class Suite:
    """What `prnn bench NAME` measures.

    Attributes:
        peers: variants beside this library, by their names in variants/.
        quick: whether a row belongs to a smoke run.
    """

    name: str
    workloads: tuple[Workload, ...]
    peers: tuple[str, ...]
    quick: Callable[[Workload], bool]


def _cpu() -> Suite:
    cells, hiddens, batches = ("lstm", "gru", "rnn_tanh"), (64, 128, 256, 512, 1024), (1, 4, 16)
    return Suite(
        "cpu",
        tuple(
            Workload(cell, mode, hidden, batch, steps, input=hidden)
            for mode, steps in (("forward", 1), ("forward", 100), ("training", 100))
            for cell in cells
            for hidden in hiddens
            for batch in batches
        ),
        ("torch.nn", "onnxruntime", "openvino", "numpy"),
        quick=lambda workload: workload.hidden == 64 and workload.batch == 1,
    )


SUITES = {suite.name: suite for suite in (_cpu(),)}

_SIZES = {"H": "hidden", "B": "batch", "T": "steps", "I": "input"}


_WORDS: dict[str, Collection[str]] = {"cell": BUILTIN, "mode": PASSES}


def selector(text: str, words: Mapping[str, Collection[str]] = _WORDS) -> Callable[[Any], bool]:
    """What `--rows` keeps: terms with commas between, as in ``lstm,H=256,T=1``.

    A term is a word (a cell, a pass) or a size. Terms of one kind are alternatives (``H=64,H=128``); every kind that occurs must match.

    Args:
        words: attribute of a workload -> words that it may be.

    Raises:
        ValueError: a term is none of these.
    """
    allowed: dict[str, set[object]] = {}
    for term in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = term.partition("=")
        if key in _SIZES and value.isdecimal():
            allowed.setdefault(_SIZES[key], set()).add(int(value))
        elif kind := next((each for each, members in words.items() if term in members), None):
            allowed.setdefault(kind, set()).add(term)
        else:
            raise ValueError(
                f"{term!r} selects no rows: give {', '.join(word for members in words.values() for word in members)} "
                f"or sizes ({', '.join(f'{size}=number' for size in _SIZES)}), separated by commas"
            )
    return lambda workload: all(getattr(workload, name) in values for name, values in allowed.items())
