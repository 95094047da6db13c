"""Checking and timing with processes that are none."""

import numpy as np
import pytest

pytest.importorskip("torch")

from prnn.bench import measure as bench  # noqa: E402
from prnn.bench.process import VariantFailed  # noqa: E402
from prnn.bench.truth import truth  # noqa: E402
from prnn.bench.variants import CannotRun, Prepared  # noqa: E402
from prnn.bench.workload import Workload  # noqa: E402

WORKLOAD = Workload("lstm", "training", 8, 2, 5, 8)


class Stub:
    """Computes the truth times `factor`, and takes `seconds` a call."""

    def __init__(self, seconds=1e-5, factor=1.0, fails=(), cannot=False):
        self.seconds, self.factor, self.fails, self.cannot, self.asked = seconds, factor, fails, cannot, []

    def ask(self, request, *arguments):
        self.asked.append(request)
        if self.cannot:
            raise CannotRun("inference only")
        if request in self.fails:
            raise VariantFailed("its process was killed by signal 9")
        if request == "prepare":
            outputs = {name: value * self.factor for name, value in truth(*arguments).outputs.items()}
            return Prepared(outputs, "cpu_panels", "a plan")
        return 10 if request == "calls_in" else self.seconds * arguments[0]


def measured(**processes):
    return bench.measure(WORKLOAD, {name.replace("torch", "torch.nn"): each for name, each in processes.items()}, 0.01)


def test_times_are_microseconds_a_step():
    found = measured(prnn=Stub(2e-5), torch=Stub(5e-5))
    assert found.checked and found.max_error == 0 and found.remarks == []
    assert len(found.times["prnn"]) >= bench.MIN_ROUNDS
    assert found.times["prnn"] == pytest.approx([4.0] * len(found.times["prnn"]))
    assert found.times["torch.nn"][0] == pytest.approx(10.0)
    assert (found.family, found.plan) == ("cpu_panels", "a plan")


def test_ours_may_err_little_and_is_timed_all_the_same():
    found = measured(prnn=Stub(factor=1 + 1e-4))
    assert not found.checked and found.max_error == pytest.approx(1e-4, rel=1e-3)
    assert "prnn: " in found.remarks[0] and found.times["prnn"]


def test_a_peer_may_trade_digits_for_speed_but_not_compute_something_else():
    found = measured(prnn=Stub(), torch=Stub(factor=1 + 1e-4), numpy=Stub(factor=1.01))
    assert found.checked and set(found.times) == {"prnn", "torch.nn"}
    assert len(found.remarks) == 2


@pytest.mark.parametrize("request_", ["prepare", "calls_in", "time"])
def test_whoever_fails_is_reported_and_the_others_go_on(request_):
    found = measured(prnn=Stub(fails=(request_,)), torch=Stub(), numpy=Stub(cannot=True))
    assert set(found.times) == {"torch.nn"}
    assert found.remarks == ["prnn failed: its process was killed by signal 9"]


def test_nan_and_missing_outputs_are_wrong():
    expected = truth(WORKLOAD)
    assert set(expected.outputs) == {
        "y", "h_n", "c_n", "d_x", "d_weight_ih_l0", "d_weight_hh_l0", "d_bias_ih_l0", "d_bias_hh_l0",
    }  # fmt: skip
    broken = dict(expected.outputs)
    broken["y"] = np.where(np.arange(8) == 3, np.nan, broken["y"])
    del broken["d_x"]
    errors = expected.errors(broken)
    assert errors["y"] == errors["d_x"] == np.inf and errors["h_n"] == 0
    assert not expected.accepts(errors)
    assert found_error(measured(prnn=Stub(factor=np.nan))) == (None, False)


def found_error(found):
    return found.max_error, found.checked
