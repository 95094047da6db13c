"""Ways to compute a workload: this library and its peers. Each is imported only in the process that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

Array = Any

OURS = "prnn"

# name -> (module of this folder, what must be installed)
MODULES = {
    OURS: ("ours", ("torch",)),
    "torch.nn": ("torch_nn", ("torch",)),
    "onnxruntime": ("onnx_runtime", ("onnx", "onnxruntime")),
    "openvino": ("open_vino", ("onnx", "openvino")),
    "numpy": ("numpy_loop", ("numpy",)),
}


class CannotRun(Exception):
    """A variant does not do this workload; the message says why."""


@dataclass(frozen=True)
class Variant:
    """A workload made ready.

    Attributes:
        outputs: computes everything that is checked: ``y``, final states by name, and in training the gradients; from zero state.
        call: what is timed: a whole sequence, or one step of a stream.
        family, plan: this library's choice; empty for peers.
    """

    outputs: Callable[[], dict[str, Array]]
    call: Callable[[], object]
    family: str = ""
    plan: str = ""


class Prepared(NamedTuple):
    """What the process of a variant answers: `Variant.outputs` computed, and the choice."""

    outputs: dict[str, Array]
    family: str
    plan: str
