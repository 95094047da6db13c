"""prnn: recurrent layers that keep their weights on the chip."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from prnn import cells, errors
from prnn.cells import cell
from prnn.specs import LayerWeights

if TYPE_CHECKING:
    from prnn import nn
    from prnn.engine import set_num_threads, set_reserved_sms
    from prnn.nn.quantize import quantize
    from prnn.nn.swap import accelerate, restore
    from prnn.sequence import run
    from prnn.stream import Stream

__all__ = [
    "LayerWeights",
    "Stream",
    "accelerate",
    "cell",
    "cells",
    "errors",
    "nn",
    "quantize",
    "restore",
    "run",
    "set_num_threads",
    "set_reserved_sms",
]


_LAZY = {
    "nn": "prnn.nn",
    "accelerate": "prnn.nn.swap",
    "restore": "prnn.nn.swap",
    "quantize": "prnn.nn.quantize",
    "run": "prnn.sequence",
    "set_num_threads": "prnn.engine",
    "set_reserved_sms": "prnn.engine",
    "Stream": "prnn.stream",
}


def __getattr__(name: str) -> Any:
    """What needs numpy or PyTorch loads it on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'prnn' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return module if name == "nn" else getattr(module, name)
