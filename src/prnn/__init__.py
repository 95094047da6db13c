"""prnn: recurrent layers that keep their weights on the chip."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from prnn import cells, errors
from prnn.cells import cell
from prnn.sequence import run
from prnn.specs import LayerWeights

if TYPE_CHECKING:
    from prnn import nn
    from prnn.nn.swap import accelerate, restore

__all__ = ["LayerWeights", "accelerate", "cell", "cells", "errors", "nn", "restore", "run"]


def __getattr__(name: str) -> Any:
    """What needs PyTorch loads it on first use."""
    if name == "nn":
        return importlib.import_module("prnn.nn")
    if name in ("accelerate", "restore"):
        return getattr(importlib.import_module("prnn.nn.swap"), name)
    raise AttributeError(f"module 'prnn' has no attribute {name!r}")
