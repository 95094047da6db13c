"""One recurrent layer as PyTorch operators: schema, fake and CPU kernels, first and second derivatives."""

from prnn.errors import MissingDependency

try:
    import torch as torch
except ImportError as error:
    raise MissingDependency('prnn.nn and prnn.accelerate need PyTorch; pip install "persistent-rnn[torch]"') from error

from prnn.ops import narrow as narrow  # registers its operator
from prnn.ops.library import layer, observed, step
from prnn.ops.registry import key_of

__all__ = ["key_of", "layer", "observed", "step"]
