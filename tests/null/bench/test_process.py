"""A variant's process: its answers, its death, its silence."""

import numpy as np
import pytest

from prnn.bench.process import VariantFailed, VariantProcess
from prnn.bench.variants import CannotRun
from prnn.bench.workload import Workload

STEP = Workload("gru", "forward", 8, 2, 1, 8)


@pytest.fixture
def process():
    made = VariantProcess("numpy", 1)
    yield made
    made.close()


def test_computes_and_times(process):
    prepared = process.ask("prepare", STEP)
    assert prepared.outputs["y"].shape == (8, 2, 8) and np.isfinite(prepared.outputs["y"]).all()
    assert process.ask("calls_in", 0.01) > 10
    assert 0 < process.ask("time", 10) < 1


def test_says_what_it_cannot_do_and_goes_on(process):
    with pytest.raises(CannotRun, match="no gradients"):
        process.ask("prepare", Workload("gru", "training", 8, 2, 3, 8))
    with pytest.raises(VariantFailed, match="^ValueError: "):
        process.ask("prepare", Workload("indrnn", "forward", 8, 2, 3, 8))
    assert process.ask("prepare", STEP).plan == ""


def test_a_killed_process_is_a_failure_and_the_next_request_starts_another(process):
    process.ask("ready")
    process._process.kill()
    with pytest.raises(VariantFailed, match="killed by signal 9"):
        process.ask("prepare", STEP)
    process.ask("prepare", STEP)


def test_a_process_that_does_not_answer_is_ended():
    process = VariantProcess("numpy", 1, patience=0.2)
    with pytest.raises(VariantFailed, match="no answer in 0.2 s"):
        process.ask("time", 10**12)
    assert process._process is None


def test_a_variant_that_cannot_be_imported_says_why():
    process = VariantProcess("no such variant", 1)
    with pytest.raises(VariantFailed, match="ended with status 1: KeyError: 'no such variant'"):
        process.ask("ready")
