"""From a plan to the driver's launches, with a driver that only writes down what it is asked to do."""

import ctypes
import threading
from ctypes import c_uint32

import pytest

from prnn import engine
from prnn.cells import lstm
from prnn.facts import GPUS
from prnn.kernels.gpu import Arguments, Features
from prnn.problem import Problem
from prnn.runtime.cuda import compiler, driver, kernel

SMALL, LARGE = Problem(lstm, 64, 64, dtype="float16"), Problem(lstm, 1024, 1024, dtype="float16")


class Recorder:
    """The functions of the driver that kernels need; one CTA fits an SM."""

    def __init__(self):
        self.launches = []
        self.current = []

    def __getattr__(self, name):
        return lambda *arguments: 0

    def cuKernelGetAttribute(self, value, attribute, *rest):
        value._obj.value = 0 if attribute == driver.LOCAL_BYTES else 128
        return 0

    def cuOccupancyMaxActiveClusters(self, count, handle, config):
        count._obj.value = dict(GPUS["h200"].active_clusters)[config._obj.grid[0]]
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, count, *rest):
        count._obj.value = 1
        return 0

    def cuCtxGetCurrent(self, context):
        self.current.append(threading.get_ident())
        context._obj.value = 1
        return 0

    def cuLaunchKernelEx(self, config, handle, parameters, extra):
        arguments = Arguments.from_address(parameters[0])
        kept = config._obj
        attribute = kept.attributes[0] if kept.num_attributes else None
        self.launches.append(
            (kept.grid[0], kept.stream, attribute and (attribute.id, attribute.value[0]), arguments.first_copy)
        )
        assert arguments.patience.launch and arguments.patience.stopped
        return 0


@pytest.fixture(autouse=True)
def recorder(monkeypatch):
    found, word = Recorder(), c_uint32()
    monkeypatch.setattr(driver, "load", lambda: found)
    monkeypatch.setattr(driver, "probe", lambda device: GPUS["h200"])
    monkeypatch.setattr(driver, "stopped_word", lambda: word)
    monkeypatch.setattr(driver, "_thread", threading.local())
    monkeypatch.setattr(compiler, "cubin", lambda *key: b"")
    caches = (engine._prepare_gpu, engine._kernel)
    for each in caches:
        each.cache_clear()
    yield found
    engine.set_reserved_sms(0)
    for each in caches:
        each.cache_clear()


def launch(problem, batch, family, directions=1):
    executable = engine.prepare_gpu(problem, 0, Features(), batch, 100, directions, family)
    executable.launch(Arguments(batch=batch), 7)
    return executable


def test_one_launch_for_a_batch_that_fits(recorder):
    executable = launch(LARGE, 8, "grid_forward")
    ctas = executable.plan.chosen.resources.ctas
    assert recorder.launches == [(ctas, 7, (driver._COOPERATIVE, 1), 0)]
    executable.launch(Arguments(batch=8), 9)
    assert recorder.launches[1] == (ctas, 9, (driver._COOPERATIVE, 1), 0)


def test_copies_that_do_not_run_at_once_take_several_launches(recorder):
    needs = launch(LARGE, 512, "grid_forward").plan.chosen.resources
    copies, at_once = -(-512 // needs.sequences), 132 // needs.ctas
    assert [each[3] for each in recorder.launches] == list(range(0, copies, at_once))
    assert sum(each[0] for each in recorder.launches) == copies * needs.ctas
    assert max(each[0] for each in recorder.launches) <= 132


def test_clusters_take_one_launch(recorder):
    plan = launch(SMALL, 300, "cluster_forward").plan
    (only,) = recorder.launches
    size = plan.config.cluster_size
    assert only[0] == size * -(-300 // plan.chosen.resources.sequences)
    assert only[2] == (driver._CLUSTER_DIMENSION, size)


@pytest.mark.parametrize("family", ["grid_forward", "cluster_forward"])
@pytest.mark.parametrize("reserved", [1, 32, 100])
def test_reserved_sms_are_left_alone(recorder, family, reserved):
    engine.set_reserved_sms(reserved)
    plan = launch(SMALL, 512, family).plan
    assert max(each[0] for each in recorder.launches) <= 132 - reserved
    assert sum(each[0] for each in recorder.launches) == plan.chosen.resources.ctas * -(
        -512 // plan.chosen.resources.sequences
    )
    assert f"{132 - reserved} SMs ({reserved} more are reserved)" in plan.explain()
    engine.set_reserved_sms(0)
    assert launch(SMALL, 512, family).plan.facts == GPUS["h200"]


def test_reserved_sms_that_make_no_sense():
    with pytest.raises(ValueError, match="at least 0, got -1"):
        engine.set_reserved_sms(-1)
    engine.set_reserved_sms(132)
    with pytest.raises(ValueError, match="has 132 SMs, of which 0 to 131 can be reserved, not 132"):
        engine.prepare_gpu(SMALL, 0, Features())


def test_a_thread_asks_for_its_context_once(recorder):
    for _ in range(3):
        engine.prepare_gpu(SMALL, 0, Features())
    thread = threading.Thread(target=lambda: engine.prepare_gpu(SMALL, 0, Features()))
    thread.start()
    thread.join()
    assert len(recorder.current) == len(set(recorder.current)) == 2


def test_a_launch_that_gave_up_is_reported_once():
    executable = engine.prepare_gpu(SMALL, 0, Features())
    driver.stopped_word().value = 5
    with pytest.raises(kernel.PrnnError, match="launch 5 of this process gave up"):
        executable.launch(Arguments(batch=1), 0)
    executable.launch(Arguments(batch=1), 0)


def test_a_launch_that_the_driver_refuses(recorder, monkeypatch):
    monkeypatch.setattr(recorder, "cuLaunchKernelEx", lambda *arguments: 701, raising=False)
    with pytest.raises(kernel.PrnnError, match=r"launching Launch\(ctas=.*CUDA error 701"):
        launch(SMALL, 1, "cluster_forward")


def test_configs_are_of_a_call_alone():
    made = driver.LaunchConfig.of(8, 4, 128, 1024)
    copied = driver.LaunchConfig.from_buffer_copy(made)
    copied.stream = 3
    assert made.stream is None and copied.attributes[0].value[0] == 4 and ctypes.sizeof(copied) == ctypes.sizeof(made)
