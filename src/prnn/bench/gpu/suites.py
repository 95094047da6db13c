"""The suites of a GPU, as values: which rows and which peers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from prnn.bench.gpu.networks import NETWORKS
from prnn.bench.gpu.workload import CELLS, HALF, MATHS, SINGLE, GpuWorkload

T = TypeVar("T")

# name of a peer -> what it is; a suite's peers are tried in this order. The names of cuDNN's end in those of its algorithms.
CUDNN = "cudnn_"
CUDNN_PEERS = tuple(
    CUDNN + each for each in ("standard", "persist_static", "persist_dynamic", "persist_static_small_h")
)
TORCH, TORCH_GRAPH, GEMM, GEMM_LAUNCHED = "torch.nn", "cuda_graph", "dense_gemm", "dense_gemm_launched"

FALLBACK = "torch"  # the family of a row that PyTorch's own implementation ran: it is not this library's

ARITHMETICS = (*((dtype, "") for dtype in HALF), *((SINGLE, each) for each in MATHS))


@dataclass(frozen=True)
class GpuSuite:
    """What `prnn bench NAME` measures.

    Attributes:
        quick: rows of a smoke run.
    """

    name: str
    workloads: tuple[GpuWorkload, ...]
    quick: tuple[GpuWorkload, ...]

    def peers(self, workload: GpuWorkload) -> tuple[str, ...]:
        """Names of what is measured beside this library in a row."""
        if workload.timing != "device":
            return (TORCH_GRAPH,) if workload.timing == "graph" else (TORCH,)
        return (TORCH, *CUDNN_PEERS, *((GEMM, GEMM_LAUNCHED) if self.name == "persistent" else ()))


def _suite(name: str, workloads: Sequence[GpuWorkload], num_quick: int) -> GpuSuite:
    return GpuSuite(name, tuple(workloads), tuple(spread(workloads)[:num_quick]))


def spread(items: Sequence[T]) -> list[T]:
    """All items in an order of which every beginning covers the whole range evenly, in each of the loops that made the list."""
    count = len(items)
    stride = next((each for each in range(round(count * 0.618), count) if math.gcd(each, count) == 1), 1)
    return [items[k * stride % count] for k in range(count)]


def _grid(
    cells: Sequence[str],
    hiddens: Sequence[int],
    batches: Sequence[int],
    arithmetics: Sequence[tuple[str, str]],
    all_steps: Sequence[int] = (256,),
    timings: Sequence[str] = ("device",),
) -> list[GpuWorkload]:
    return [
        GpuWorkload(cell, *arithmetic, hidden, batch, steps, input=hidden, timing=timing)
        for timing in timings
        for cell in cells
        for hidden in hiddens
        for steps in all_steps
        for batch in batches
        for arithmetic in arithmetics
    ]


def _networks() -> list[GpuWorkload]:
    """Each in the dtype of its own code, in which PyTorch allows TF32, and in float16."""
    return [
        GpuWorkload(
            each.cell, dtype, "tf32" if dtype == SINGLE else "", each.hidden, each.batch, each.steps, each.input, each.layers,
            each.directions, each.projection, network=each.name,
        )
        for each in NETWORKS
        for dtype in dict.fromkeys((each.dtype, "fp16"))
    ]  # fmt: skip


GPU_SUITES = {
    suite.name: suite
    for suite in (
        _suite("dense", _grid(CELLS, (64, 128, 256, 512, 1024, 1536, 2048), (1, 2, 4, 8, 16, 32, 64, 128), ARITHMETICS), 12),
        _suite(
            "persistent",
            _grid(("rnn_tanh",), (1152, 1792), (1, 2, 4, 8, 16, 32, 64), (("fp16", ""), ("fp32", "tf32"), ("fp32", "ieee"))),
            3,
        ),
        _suite("networks", _networks(), 4),
        _suite(
            "short",
            _grid(
                ("lstm",), (128, 512, 1024), (1, 8), (("fp16", ""), ("fp32", "tf32")), (1, 2, 4, 8, 16, 64), ("wall", "graph")
            ),
            4,
        ),
    )
}  # fmt: skip
