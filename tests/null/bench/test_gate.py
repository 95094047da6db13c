"""What rows must reach, on invented rows."""

import pytest

from prnn.bench.gate import judge, judge_all, required
from prnn.bench.rows import save
from prnn.bench.suites import SUITES
from prnn.bench.workload import Workload
from prnn.cli import main


@pytest.mark.parametrize(
    ("cell", "mode", "hidden", "batch", "steps", "asked"),
    [
        ("lstm", "forward", 64, 1, 1, 3.0),
        ("gru", "forward", 128, 1, 1, 3.0),
        ("lstm", "forward", 256, 1, 1, 1.3),
        ("lstm", "forward", 512, 1, 1, 1.3),
        ("gru", "forward", 512, 1, 1, 1.6),
        ("gru", "forward", 1024, 1, 1, 1.0),
        ("lstm", "forward", 128, 4, 1, 1.3),
        ("gru", "forward", 64, 16, 1, 1.3),
        ("lstm", "forward", 256, 16, 1, None),
        ("lstm", "forward", 128, 1, 100, 1.4),
        ("gru", "forward", 256, 1, 100, None),
        ("lstm", "forward", 64, 4, 100, 1.0),
        ("gru", "forward", 256, 16, 100, 1.1),
        ("gru", "forward", 512, 16, 100, 1.0),
        ("rnn_tanh", "forward", 256, 16, 100, 1.1),
        ("rnn_tanh", "forward", 256, 4, 100, 1.5),
        ("rnn_tanh", "forward", 256, 1, 1, 1.5),
        ("rnn_tanh", "forward", 64, 1, 1, 3.0),
        ("rnn_tanh", "forward", 512, 1, 1, 1.3),
        ("lstm", "training", 1024, 16, 100, 1.15),
        ("gru", "training", 64, 1, 100, 1.3),
        ("rnn_tanh", "training", 1024, 4, 100, 1.3),
    ],
)
def test_the_table(cell, mode, hidden, batch, steps, asked):
    assert required(Workload(cell, mode, hidden, batch, steps, hidden)) == asked
    assert required(Workload(cell, mode, hidden, batch, steps, hidden, threads=2)) is None


@pytest.mark.parametrize(
    ("changes", "passed", "why"),
    [
        ({}, True, "1.40x onnxruntime, asked 1.30x"),
        ({"peers": {"onnxruntime": 129.0}}, True, "within the noise"),  # best round 99: 1.303
        ({"peers": {"onnxruntime": 128.0}}, False, "1.28x onnxruntime, asked 1.30x"),
        ({"peers": {"onnxruntime": 124.0}, "ours_spread": [50.0, 200.0]}, True, "the noise of 5.0%"),
        ({"peers": {"onnxruntime": 123.0}, "ours_spread": [50.0, 200.0]}, False, "1.23x"),
        ({"peers": {"onnxruntime": 100.0}, "floor_us": 91.0}, True, "a tie, 1.10 of its floor"),
        ({"peers": {"onnxruntime": 100.0}, "floor_us": 90.0}, False, "1.00x"),
        ({"checked": False}, False, "its result was wrong"),
        ({"checked": False, "hidden": 256, "batch": 16}, False, "its result was wrong"),
        ({"ours_us": None, "ours_spread": None, "checked": False}, False, "this library failed"),
        ({"peers": {}}, False, "no peer was measured"),
        ({"hidden": 256, "batch": 16, "peers": {"numpy": 1.0}}, True, "nothing is asked"),
        # training is held against torch.nn even if something else is faster
        ({"pass": "training", "steps": 100, "peers": {"torch.nn": 120.0, "other": 90.0}}, True, "1.20x torch.nn"),
        ({"pass": "training", "steps": 100, "peers": {"other": 900.0}}, False, "no peer was measured"),
    ],
)
def test_verdicts(invent, changes, passed, why):
    verdict = judge(invent(**changes))
    assert verdict.passed is passed and why in str(verdict)


def test_a_missing_row_fails(invent):
    workloads = [Workload("lstm", "forward", 256, 1, 1, 256), Workload("gru", "forward", 256, 1, 1, 256)]
    assert [(each.passed, each.why) for each in judge_all([invent()], workloads)] == [
        (True, "1.40x onnxruntime, asked 1.30x"),
        (False, "no such row"),
    ]


def test_on_the_command_line(tmp_path, invent, capsys):
    path = tmp_path / "rows.json"
    save([invent(), invent(cell="gru")], path)
    arguments = ["bench", "cpu", "--rows", "lstm,gru,H=256,B=1,T=1", "--check", str(path)]
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in lines] == ["pass", "FAIL", "1 pa"] and "gru" in lines[1] and "asked 1.60x" in lines[1]
    save([invent(), invent(cell="gru", peers={"numpy": 160.0})], path)
    assert main(arguments) == 0
    assert main(["bench", "cpu", "--check", str(path)]) == 1
    assert f"{len(SUITES['cpu'].workloads) - 2} fail" in capsys.readouterr().out
    assert main(["bench", "cpu", "--check", str(tmp_path / "none.json")]) == 1
    assert "cannot read rows" in capsys.readouterr().err
