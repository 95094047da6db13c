"""Names every package that the demo needs and this Python lacks, in one message."""

from __future__ import annotations

from importlib.util import find_spec

from prnn.errors import MissingDependency

PACKAGES = ("torch", "onnx", "onnxruntime", "matplotlib")


def require() -> None:
    """Raise MissingDependency unless all of PACKAGES can be imported."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f'the demo needs {", ".join(missing)}: install with  pip install "persistent-rnn[demo]"'
        )
