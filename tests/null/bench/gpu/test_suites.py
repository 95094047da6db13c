"""The suites of a GPU, the order of their rows, and floors."""

from collections import Counter

import pytest

from prnn.bench.gpu.floors import floor
from prnn.bench.gpu.networks import NETWORKS
from prnn.bench.gpu.suites import CUDNN_PEERS, GEMM_LAUNCHED, GPU_SUITES, spread
from prnn.bench.gpu.workload import GpuWorkload, key
from prnn.bench.suites import selector
from prnn.facts import GPUS


def chosen(suite, text):
    return [each for each in GPU_SUITES[suite].workloads if selector(text, GpuWorkload.WORDS)(each)]


def test_dense_has_672_rows():
    workloads = GPU_SUITES["dense"].workloads
    assert len(set(workloads)) == len(workloads) == 672
    assert all((each.steps, each.input, each.timing) == (256, each.hidden, "device") for each in workloads)
    assert len(chosen("dense", "lstm,fp16")) == 56 and len(chosen("dense", "tf32,H=64,H=128,B=1")) == 6
    assert GPU_SUITES["dense"].peers(workloads[0]) == ("torch.nn", *CUDNN_PEERS)


def test_the_other_suites():
    persistent = GPU_SUITES["persistent"]
    assert {each.hidden for each in persistent.workloads} == {1152, 1792} and len(persistent.workloads) == 42
    assert GEMM_LAUNCHED in persistent.peers(persistent.workloads[0])
    assert Counter(each.timing for each in GPU_SUITES["short"].workloads) == {"wall": 72, "graph": 72}
    assert [GPU_SUITES["short"].peers(chosen("short", term)[0]) for term in ("wall", "graph")] == [
        ("torch.nn",),
        ("cuda_graph",),
    ]
    assert {each.network for each in GPU_SUITES["networks"].workloads} == {each.name for each in NETWORKS}


@pytest.mark.parametrize("suite", GPU_SUITES.values(), ids=GPU_SUITES)
def test_rows_can_be_told_apart_and_a_smoke_run_is_part_of_the_suite(suite):
    assert len({key(suite.name, each) for each in suite.workloads}) == len(suite.workloads)
    assert set(suite.quick) < set(suite.workloads) and len(suite.quick) >= 3


def test_networks_are_cited():
    assert len({each.name for each in NETWORKS}) == len(NETWORKS)
    assert all(each.source.startswith("https://github.com/") for each in NETWORKS)
    assert all(each.projection == 0 or each.cell == "lstm" for each in NETWORKS)


def test_every_beginning_of_a_run_covers_the_space():
    workloads = GPU_SUITES["dense"].workloads
    order = spread(workloads)
    assert sorted(map(workloads.index, order)) == list(range(672))
    for name, values in (("cell", 3), ("hidden", 7), ("batch", 8), ("arithmetic", 4)):
        counts = Counter(getattr(each, name) for each in order[:112])
        assert len(counts) == values and max(counts.values()) <= 1.5 * min(counts.values()), (name, counts)
    assert spread([]) == [] and spread([1]) == [1]


@pytest.mark.parametrize(
    ("workload", "least", "most", "by"),
    [
        (GpuWorkload("lstm", "fp16", "", 64, 1, 256, 64), 0.016, 0.1, "exchange"),  # one SM
        (GpuWorkload("lstm", "fp16", "", 256, 8, 256, 256), 0.28, 0.4, "exchange"),  # a cluster
        (GpuWorkload("lstm", "fp16", "", 1024, 8, 256, 1024), 0.6, 0.9, "exchange"),  # more SMs than a cluster has
        (GpuWorkload("lstm", "fp16", "", 2048, 128, 256, 2048), 8.5, 9.0, "arithmetic"),
        (GpuWorkload("lstm", "fp32", "tf32", 3072, 64, 256, 3072), 35.5, 36.5, "bytes"),  # 151 MB do not fit the chip
        (GpuWorkload("lstm", "fp16", "", 64, 16384, 1, 1024), 8.0, 9.5, "arithmetic"),
        (GpuWorkload("lstm", "fp32", "ieee", 1024, 128, 256, 1024), 30.0, 40.0, "arithmetic"),
        (GpuWorkload("gru", "fp32", "tf32", 6144, 1, 256, 6144), 100.0, 110.0, "bytes"),
    ],
)
def test_floors(workload, least, most, by):
    found, found_by = floor(workload, GPUS["h200"])
    assert least < found < most and found_by == by


def test_layers_come_one_after_the_other():
    one = GpuWorkload("lstm", "fp16", "", 256, 8, 256, 256)
    five = GpuWorkload("lstm", "fp16", "", 256, 8, 256, 256, layers=5)
    assert floor(five, GPUS["h200"])[0] == pytest.approx(5 * floor(one, GPUS["h200"])[0])
