"""Checking and timing, with a GPU that is none."""

import itertools
import json

import pytest

torch = pytest.importorskip("torch")

from prnn.bench.gpu import measure as bench  # noqa: E402
from prnn.bench.gpu import timing, truth, variants  # noqa: E402
from prnn.bench.gpu.variants import Variant  # noqa: E402
from prnn.bench.gpu.workload import GpuWorkload  # noqa: E402
from prnn.bench.origin import origin  # noqa: E402
from prnn.bench.rows import KEYS, load, save  # noqa: E402
from prnn.errors import PrnnError  # noqa: E402
from prnn.facts import GPUS, probe_cpu  # noqa: E402

WORKLOAD = GpuWorkload("gru", "fp32", "ieee", 8, 3, 20, 5)
PEERS = ("torch.nn", "cudnn_standard", "cudnn_persist_static", "cudnn_persist_dynamic")


class Timer:
    """Takes `us` in every turn and remembers whose it was."""

    def __init__(self, name, us, turns):
        self.name, self._us, self._turns = name, us, turns

    def us(self):
        self._turns.append(self.name)
        if isinstance(self._us, Exception):
            raise self._us
        return self._us


@pytest.fixture
def device(monkeypatch):
    """Stands for a GPU: outputs are torch.nn's on the CPU, changed by `change`; times are given; a dict of both, and the turns."""
    state = {"us": {}, "factor": {}, "refuse": {}, "turns": [], "closed": [], "synchronize": lambda: None}
    draw, eager = variants.draw, variants.eager

    def prepare(name, workload, data):
        if name in state["refuse"]:
            raise state["refuse"][name]
        call = eager("torch.nn", workload, data)
        factor = state["factor"].get(name, 1.0)
        plan = ("cluster_forward", "a plan") if name == "prnn" else ("", "")
        return Variant(lambda: tuple(each * factor for each in call()), lambda: state["closed"].append(name), *plan)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: state["synchronize"]())
    monkeypatch.setattr(variants, "draw", lambda workload: draw(workload, "cpu"))
    monkeypatch.setattr(variants, "prepare", prepare)
    monkeypatch.setattr(
        bench, "_timer", lambda w, name, variant: Timer(name, state["us"].get(name, 200.0), state["turns"])
    )
    return state


def measured(workload=WORKLOAD, peers=PEERS):
    return bench.measure(workload, peers, 0.0)


def test_times_are_microseconds_a_step_in_turns(device):
    device["us"] = {"prnn": 100.0, "torch.nn": 5000.0, "cudnn_persist_static": 150.0}
    found = measured()
    assert found.checked and found.max_error < 1e-6 and found.remarks == [] and found.refused == {}
    assert set(found.times["prnn"]) == {5.0} and set(found.times["torch.nn"]) == {250.0}
    turns = {name: device["turns"].count(name) for name in ("prnn", *PEERS)}
    # one trial each; then only cuDNN's two fastest, and what is slow takes every third turn
    assert turns == {
        "prnn": 6, "cudnn_persist_static": 6, "cudnn_standard": 6, "cudnn_persist_dynamic": 1, "torch.nn": 3,
    }  # fmt: skip
    assert (found.family, found.plan) == ("cluster_forward", "a plan")
    assert sorted(device["closed"]) == sorted(("prnn", *PEERS))


def test_a_row_of_the_schema(device, tmp_path):
    device["us"] = {"prnn": 100.0, "cudnn_persist_static": 150.0}
    device["refuse"] = {"cudnn_standard": RuntimeError("no kernel")}
    row = bench.as_row("dense", origin(probe_cpu()), WORKLOAD, measured(), GPUS["h200"])
    assert set(row) == KEYS | {"refused"} and row["refused"] == {"cudnn_standard": "RuntimeError: no kernel"}
    assert (row["best_peer"], row["ratio"], row["checked"]) == ("cudnn_persist_static", 1.5, True)
    save([row], tmp_path / "rows.json")
    assert load([tmp_path / "rows.json"]) == [row]


def test_ours_may_err_little_and_a_peer_a_little_more(device):
    device["factor"] = {"prnn": 1 + 4e-5, "cudnn_standard": 1 + 4e-5, "cudnn_persist_static": 1.001}
    found = measured()
    assert not found.checked and found.max_error == pytest.approx(4e-5, rel=0.1)
    assert "prnn" in found.times and "cudnn_standard" in found.times
    assert found.refused == {"cudnn_persist_static": "it is off by 1.0e-03"} and len(found.remarks) == 3


def test_nan_is_wrong(device):
    device["factor"] = {"prnn": float("nan")}
    found = measured()
    assert (found.max_error, found.checked) == (None, False)
    json.dumps(bench.as_row("dense", origin(probe_cpu()), WORKLOAD, found, GPUS["h200"]), allow_nan=False)


def test_later_steps_are_held_against_a_peer(device, monkeypatch):
    late = [torch.zeros(20, 3, 8), torch.zeros(1, 3, 8)]
    late[0][15, 1, 2] = 0.01
    prepare = variants.prepare

    def wrong(name, workload, data):
        variant = prepare(name, workload, data)
        if name != "prnn":
            return variant
        return Variant(lambda: tuple(a + b for a, b in zip(variant.call(), late)))

    monkeypatch.setattr(variants, "prepare", wrong)
    found = measured()
    assert not found.checked and found.max_error < 1e-6 and "over all steps" in found.remarks[0]


def test_whoever_fails_is_reported_and_the_others_go_on(device):
    device["refuse"] = {"prnn": ValueError("no plan")}
    device["us"] = {"cudnn_standard": RuntimeError("lost its way")}
    found = measured()
    assert set(found.times) == {"torch.nn", "cudnn_persist_static", "cudnn_persist_dynamic"}
    assert found.refused == {"cudnn_standard": "RuntimeError: lost its way"}
    assert found.remarks == ["prnn failed: ValueError: no plan"] and not found.checked


def test_a_lost_device_ends_the_run(device):
    def broken():
        raise RuntimeError("an illegal memory access was encountered")

    device["synchronize"] = broken
    with pytest.raises(PrnnError, match="the GPU stopped working when prnn ran: RuntimeError: an illegal"):
        measured()


def test_dynamic_plans_are_not_tried_with_many_sequences(device):
    many = GpuWorkload("gru", "fp32", "ieee", 8, 8, 4, 5)
    assert "not tried with more than 4" in measured(many).refused["cudnn_persist_dynamic"]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    "workload",
    [
        WORKLOAD,
        GpuWorkload("rnn_tanh", "fp32", "ieee", 8, 1, 1, 8),
        GpuWorkload("lstm", "fp32", "ieee", 8, 2, 15, 4, layers=2, directions=2, projection=3),
        GpuWorkload("gru", "fp32", "ieee", 8, 2, 15, 4, layers=3),
    ],
    ids=str,
)
def test_the_reference_is_what_torch_computes(workload):
    data = variants.draw(workload, "cpu")
    with torch.no_grad():
        y = variants.eager("torch.nn", workload, data)()[0]
    true = truth.truth(workload, data)
    assert true.shape[0] == (workload.steps if workload.directions == 2 else min(workload.steps, 12))
    assert truth.error(y, true, workload) < 1e-6
    assert truth.error(y[:-1], true[: len(y)], workload) == float("inf") or workload.directions == 1


def test_a_product_for_every_step_is_the_layer():
    workload = GpuWorkload("rnn_tanh", "fp32", "ieee", 8, 3, 9, 5)
    data = variants.draw(workload, "cpu")
    with torch.no_grad():
        ours, theirs = variants.gemm_layer(data)(), variants.eager("torch.nn", workload, data)()
    assert truth.apart(ours, theirs) < 1e-6


def test_settings_of_float32_come_back():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    for math, allowed in (("tf32", True), ("ieee", False)):
        with pytest.raises(KeyError), variants.float32_math(math):
            assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
            raise KeyError
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_the_family_of_a_call(monkeypatch):
    from prnn import engine
    from prnn.ops import torch_layer

    class Executable:
        class plan:  # noqa: N801
            family = "cluster_forward"

    monkeypatch.setattr(engine, "prepare_gpu", lambda *arguments: Executable)
    monkeypatch.setattr(torch_layer, "run", lambda *arguments: None)
    family, plan = variants.plan_of(lambda: (engine.prepare_gpu(1), engine.prepare_gpu(2)))
    assert family == "cluster_forward" and ";" not in plan

    def falls_back():
        import warnings

        from prnn.errors import PrnnFallbackWarning

        warnings.warn("there is no kernel", PrnnFallbackWarning, stacklevel=1)
        torch_layer.run()

    assert variants.plan_of(falls_back) == ("torch", "there is no kernel")


class Gpu:
    """A clock that a sleep, a launch and a kernel advance: of the host and of the device, in microseconds."""

    def __init__(self, launch_us, kernel_us, count, queue=10**9):
        self.host = self.device = 0.0
        self.sleeps, self.launch_us, self.kernel_us, self.count, self.queue = [], launch_us, kernel_us, count, queue

    def sleep(self, cycles):
        self.sleeps.append(cycles / 2000)
        self.device = max(self.host, self.device) + cycles / 2000

    def call(self):
        asleep_until = self.device
        for number in range(self.count):
            self.host += self.launch_us
            if number >= self.queue:
                self.host = max(self.host, asleep_until)
            self.device = max(self.host, self.device) + self.kernel_us

    def install(self, monkeypatch):
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = max(gpu.host, gpu.device)

            def query(self):
                return self.at <= gpu.host

            def synchronize(self):
                gpu.host = max(gpu.host, self.at)

            def elapsed_time(self, end):
                return (end.at - self.at) / 1e3

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", self.sleep, raising=False)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: setattr(self, "host", max(self.host, self.device)))
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.host / 1e6)


def test_a_call_is_enqueued_behind_a_sleep(monkeypatch):
    gpu = Gpu(launch_us=5, kernel_us=1, count=100)
    gpu.install(monkeypatch)
    timer = timing.DeviceTimer(gpu.call)
    assert [timer.us() for _ in range(3)] == pytest.approx([100.0] * 3)
    assert gpu.sleeps == pytest.approx([800.0] * 3)  # 1.5 times what it took to enqueue, and 50 us
    assert timing.DeviceTimer(gpu.call, hidden=False).us() == pytest.approx(501.0, abs=6)


def test_a_sleep_that_was_too_short_is_doubled(monkeypatch):
    gpu = Gpu(launch_us=5, kernel_us=1, count=100)
    gpu.install(monkeypatch)
    timer = timing.DeviceTimer(gpu.call)
    gpu.launch_us = 12
    assert timer.us() == pytest.approx(100.0) and gpu.sleeps == pytest.approx([800.0, 1600.0])
    timer.us()
    assert gpu.sleeps[2:] == pytest.approx([1600.0])


def test_a_full_queue_does_not_lengthen_the_sleep_for_ever(monkeypatch):
    gpu = Gpu(launch_us=5, kernel_us=1, count=100, queue=40)
    gpu.install(monkeypatch)
    timer = timing.DeviceTimer(gpu.call)
    first = timer.us()
    before = len(gpu.sleeps)
    assert timer.us() == first < 501 and before == 3 and len(gpu.sleeps) == 4


def test_wall_time_waits_for_the_result(monkeypatch):
    gpu = Gpu(launch_us=5, kernel_us=9, count=10)
    gpu.install(monkeypatch)
    timer = timing.WallTimer(gpu.call)
    assert list(itertools.islice(iter(timer.us, None), 2)) == pytest.approx([95.0, 95.0])
