"""onnxruntime: one LSTM, GRU or RNN node, with bound memory for a stream."""

from __future__ import annotations

from functools import partial

import numpy as np

from prnn.bench.onnx_session import OnnxSequence, OnnxStream
from prnn.bench.variants import Array, CannotRun, Variant
from prnn.bench.workload import Data, Workload


def prepare(workload: Workload, data: Data) -> Variant:
    """See Variant."""
    if workload.mode == "training":
        raise CannotRun("inference only")
    if workload.streaming:
        stream = OnnxStream(workload.cell, [data.weights], workload.batch, workload.threads)

        def outputs() -> dict[str, Array]:
            stream.reset()
            return {"y": np.stack([stream.step(x) for x in data.x])}

        return Variant(outputs, partial(stream.step, data.x[0].copy()))
    sequence = OnnxSequence(workload.cell, [data.weights], workload.batch, workload.threads)

    def named() -> dict[str, Array]:
        y, finals = sequence(data.x)
        return {"y": y} | {name: final[0] for name, final in zip(("h_n", "c_n"), finals)}

    return Variant(named, partial(sequence, data.x))
