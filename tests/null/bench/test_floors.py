"""Bytes and operations that a row cannot do without."""

import dataclasses

import pytest

from prnn.bench.floors import Machine, floor, measured_rates
from prnn.bench.workload import Workload
from prnn.facts import CpuFacts, CpuRates
from prnn.runtime.cpu import library, rates

FACTS = CpuFacts("a CPU", ("x86-64-v3",), 2, 32 << 10, 512 << 10, 0)


@pytest.fixture
def machine(monkeypatch):
    """Reads 1 byte in a nanosecond, 2 with two threads; 10 operations in one."""
    asked = []
    monkeypatch.setattr(rates, "read_us", lambda size, threads, seconds: asked.append(size) or size / 1e3 / threads)
    monkeypatch.setattr(rates, "gflops", lambda threads, seconds: 10.0 * threads)
    made = Machine()
    made.asked = asked
    return made


def test_a_stream_reads_all_weights(machine):
    # LSTM: 4 gates x 8 units x (6 inputs + 8 units) x 4 bytes
    assert floor(Workload("lstm", "forward", 8, 1, 1, 6), machine) == (pytest.approx(1.792), "bytes")
    assert floor(Workload("lstm", "forward", 8, 1, 1, 6, threads=2), machine)[0] == pytest.approx(0.896)


def test_a_sequence_reads_the_recurrent_weights_each_step(machine):
    assert floor(Workload("lstm", "forward", 8, 1, 100, 6), machine) == (pytest.approx(1.024), "bytes")


def test_arithmetic_grows_with_the_batch_and_training_does_three_times_as_much(machine):
    expected = 2 * 32 * 3 * 8 * (6 + 8) / 10e3
    assert floor(Workload("gru", "forward", 8, 32, 100, 6), machine) == (pytest.approx(expected), "arithmetic")
    assert floor(Workload("gru", "training", 8, 32, 100, 6), machine) == (pytest.approx(3 * expected), "arithmetic")


def test_training_reads_the_recurrent_weights_twice(machine):
    assert floor(Workload("lstm", "training", 8, 1, 100, 6), machine) == (pytest.approx(2.048), "bytes")


def test_a_size_is_measured_once(machine):
    for _ in range(2):
        floor(Workload("lstm", "forward", 8, 1, 100, 6), machine)
    assert machine.asked == [1024]


def test_rates_of_the_levels_that_there_are(machine):
    said = []
    assert measured_rates(FACTS, machine, said.append) == CpuRates(10.0, 1.0, 1.0, 1.0, 1.0)
    assert machine.asked == [16 << 10, 256 << 10, 32 << 20]
    assert said[0] == "reading L1: 0.0156 MiB again and again" and said[-1] == "multiplying and adding"
    measured_rates(dataclasses.replace(FACTS, l3_bytes=128 << 20), machine, said.append)
    assert machine.asked[3:] == [16 << 20, 128 << 20]


@pytest.mark.skipif(library.library_path() is None, reason="the native engine is not built")
def test_this_machine_has_limits():
    # Bounds that hold on any machine under any load: 1 MHz at least, 1 TB/s of one core at most.
    assert 1e-3 < rates.gflops(1, 0.01) < 1e4
    for num_bytes, threads in ((1 << 20, 1), (1 << 20, 2), (1000, 2)):
        assert num_bytes / 1e6 < rates.read_us(num_bytes, threads, 0.01) < 1e6
