"""The schema, files and table of rows."""

import json

import pytest

from prnn.bench.measure import Measured, as_row
from prnn.bench.origin import origin
from prnn.bench.rows import KEYS, load, save, workload_of
from prnn.bench.text import table
from prnn.bench.workload import Workload
from prnn.errors import PrnnError
from prnn.facts import probe_cpu

WORKLOAD = Workload("lstm", "forward", 64, 4, 100, 64)


class Machine:
    """A microsecond for 10 kB, 100 operations a nanosecond."""

    def read_us(self, num_bytes, threads):
        return num_bytes / 1e4

    def gflops(self, threads):
        return 100.0


def row(measured):
    return as_row("cpu", origin(probe_cpu()), WORKLOAD, measured, Machine())


def test_a_measurement_becomes_a_row_of_the_schema():
    times = {"prnn": [3.0, 2.0, 9.0], "torch.nn": [8.0, 6.0, 7.0], "numpy": [40.0]}
    made = row(Measured("cpu_panels", "a plan", times, 1e-7, True))
    assert set(made) == KEYS
    assert made["ours_us"] == 3.0 and made["ours_spread"] == [2.0, 9.0]
    assert made["peers"] == {"torch.nn": 7.0, "numpy": 40.0}
    assert made["best_peer"] == "torch.nn" and made["ratio"] == pytest.approx(7 / 3)
    assert made["checked"] is True and workload_of(made) == WORKLOAD
    json.dumps(made, allow_nan=False)


def test_a_failure_is_a_row():
    made = row(Measured(times={"torch.nn": [8.0]}, checked=True))
    assert set(made) == KEYS
    assert made["ours_us"] is None and made["ratio"] is None and made["checked"] is False
    assert made["peers"] == {"torch.nn": 8.0}


def test_rows_come_back_from_a_file(tmp_path, invent):
    rows = [invent(), invent(hidden=64)]
    save(rows, tmp_path / "rows.json")
    assert load([tmp_path / "rows.json"]) == rows
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_files_that_are_no_rows(tmp_path, invent):
    path = tmp_path / "rows.json"
    with pytest.raises(PrnnError, match="cannot read rows from"):
        load([path])
    path.write_text("{")
    with pytest.raises(PrnnError, match="cannot read rows from"):
        load([path])
    path.write_text(json.dumps([invent() | {"speed": 1}]))
    with pytest.raises(PrnnError, match="row 0 .* unknown keys: speed"):
        load([path])


def test_table_has_a_line_for_each_row_and_a_dash_for_what_is_absent(invent):
    text = table([invent(), invent(peers={}, ours_us=None, ours_spread=None, checked=False, max_error=None)])
    heads, first, second = text.splitlines()
    assert "onnxruntime" in heads and "1.40" in first and second.split()[-1] == "NO" and "-" in second.split()
    assert len({len(line) for line in text.splitlines()}) == 1


def test_commit_is_that_of_the_tree_or_the_package():
    assert origin(probe_cpu())["commit"]
