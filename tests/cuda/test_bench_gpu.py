"""The bench on a GPU: every peer computes the same, and a row is checked, timed and complete."""

import pytest
import torch

from prnn.bench.gpu import cudnn, variants
from prnn.bench.gpu.measure import measure
from prnn.bench.gpu.suites import CUDNN_PEERS, GEMM, GEMM_LAUNCHED
from prnn.bench.gpu.timing import DeviceTimer, captured
from prnn.bench.gpu.truth import TOLERANCE, apart
from prnn.bench.gpu.workload import GpuWorkload

LAYERS = {"layers": 2, "directions": 2}


@pytest.mark.parametrize(
    "workload",
    [
        GpuWorkload("lstm", "fp16", "", 64, 3, 20, 32),
        GpuWorkload("gru", "bf16", "", 64, 3, 20, 32),
        GpuWorkload("rnn_tanh", "fp32", "ieee", 64, 1, 20, 64),
        GpuWorkload("gru", "fp32", "tf32", 64, 2, 20, 32, **LAYERS),
        GpuWorkload("lstm", "fp32", "ieee", 64, 2, 20, 32, **LAYERS, projection=16),
    ],
    ids=str,
)
def test_cudnn_computes_what_torch_does(workload):
    with torch.no_grad(), variants.float32_math(workload.math):
        data = variants.draw(workload)
        want = variants.eager("torch.nn", workload, data)()
        layer = cudnn.Layer(cudnn.load(), workload, "standard", data.x, data.weights)
        assert apart(layer.forward(), want) <= 2 * TOLERANCE[workload.arithmetic]
        layer.close()


def test_a_row():
    workload = GpuWorkload("rnn_tanh", "fp16", "", 128, 4, 64, 128)
    found = measure(workload, ("torch.nn", *CUDNN_PEERS, GEMM, GEMM_LAUNCHED), 0.05)
    assert found.checked, found.remarks
    assert found.family not in ("", "torch") and "128" in found.plan
    assert {"prnn", "torch.nn", "cudnn_standard", "cudnn_persist_static", GEMM, GEMM_LAUNCHED} <= set(found.times), (
        found.refused
    )
    assert min(found.times[GEMM_LAUNCHED]) > min(found.times[GEMM])


@pytest.mark.parametrize("timing", ["wall", "graph"])
def test_a_short_row(timing):
    workload = GpuWorkload("lstm", "fp16", "", 128, 1, 2, 128, timing=timing)
    found = measure(workload, ("cuda_graph" if timing == "graph" else "torch.nn",), 0.05)
    assert found.checked and len(found.times) == 2, (found.remarks, found.refused)


def test_the_device_is_timed_not_python():
    x = torch.randn(64, 64, device="cuda")

    def call():
        y = x
        for _ in range(200):
            y = y * 1.0
        return (y,)

    eager, graph = DeviceTimer(call), DeviceTimer(captured(call))
    eager_us, graph_us = (min(timer.us() for _ in range(5)) for timer in (eager, graph))
    launched_us = DeviceTimer(call, hidden=False).us()
    assert 0.5 * graph_us < eager_us < 4 * graph_us and eager_us < launched_us
