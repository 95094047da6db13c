"""OpenVINO on the same one-node graph as onnxruntime, with bound memory for a stream."""

from __future__ import annotations

import numpy as np
import openvino  # type: ignore[import-not-found,unused-ignore]

from prnn.bench.onnx_graph import chain
from prnn.bench.variants import Array, CannotRun, Variant
from prnn.bench.workload import Data, Workload


def prepare(workload: Workload, data: Data) -> Variant:
    """See Variant."""
    if workload.mode == "training":
        raise CannotRun("inference only")
    core = openvino.Core()
    model = chain(workload.cell, [data.weights], workload.batch, workload.steps, whole=not workload.streaming)
    options = {
        "INFERENCE_NUM_THREADS": workload.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    num_states = len(workload.problem.cell.states)

    def zeros() -> list[Array]:
        return [np.zeros((1, workload.batch, workload.hidden), np.float32) for _ in range(num_states)]

    if not workload.streaming:
        whole = compiled.create_infer_request()
        inputs = [data.x, *zeros()]

        def sequence() -> list[Array]:
            return list(whole.infer(inputs, share_inputs=True, share_outputs=True).values())

        def named() -> dict[str, Array]:
            y, *finals = (each.copy() for each in sequence())
            return {"y": y[:, 0]} | {name: final[0] for name, final in zip(("h_n", "c_n"), finals)}

        return Variant(named, sequence)

    x = np.zeros((1, workload.batch, workload.input), np.float32)
    states = [zeros(), zeros()]

    def request(read: list[Array], written: list[Array]) -> openvino.InferRequest:
        bound = compiled.create_infer_request()
        for place, array in enumerate((x, *read)):
            bound.set_input_tensor(place, openvino.Tensor(array, shared_memory=True))
        for place, array in enumerate(written):
            bound.set_output_tensor(place, openvino.Tensor(array, shared_memory=True))
        return bound

    # Steps alternate between two bound sets of states, as with onnxruntime.
    requests = [request(*states), request(*states[::-1])]
    turn = 0

    def step(row: Array) -> Array:
        nonlocal turn
        x[0] = row
        requests[turn].infer()
        turn = 1 - turn
        return states[turn][0][0].copy()

    def steps() -> dict[str, Array]:
        for state in states[turn]:
            state[...] = 0
        return {"y": np.stack([step(row) for row in data.x])}

    first = data.x[0].copy()
    return Variant(steps, lambda: step(first))
