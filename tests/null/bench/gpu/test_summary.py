"""Means, marks and gates of invented rows, and the command line without a GPU."""

import pytest

from prnn.bench.gpu import summary
from prnn.bench.gpu.run import summary as line_of
from prnn.bench.gpu.suites import GPU_SUITES
from prnn.bench.gpu.workload import GpuWorkload
from prnn.bench.rows import save
from prnn.cli import main


@pytest.fixture
def row(invent):
    def made(**changes):
        peers = {"torch.nn": 60.0, "cudnn_standard": 20.0, "cudnn_persist_static": 4.0}
        fixed = {
            "suite": "dense", "dtype": "fp16", "math": "", "steps": 256, "batch": 8, "ours_us": 1.0, "peers": peers, "floor_us": 0.7,
            "family": "cluster_forward",
        }  # fmt: skip
        return invent(**(fixed | changes))

    return made


def every_dense_row(row, **changes):
    return [
        row(cell=w.cell, dtype=w.dtype, math=w.math, hidden=w.hidden, input=w.input, batch=w.batch, **changes)
        for w in GPU_SUITES["dense"].workloads
    ]


def failures(suite, rows, workloads=()):
    return [each.text for each in summary.judge(suite, rows, workloads) if not each.passed]


def test_what_counts(row):
    assert summary.best_cudnn(row()) == 4.0
    assert summary.best_cudnn(row(peers={"torch.nn": 3.0, "cudnn_standard": 5.0, "dense_gemm": 1.0})) == 3.0
    assert summary.best_cudnn(row(peers={"dense_gemm": 1.0})) is None
    assert (
        summary.is_ours(row()) and not summary.is_ours(row(family="torch")) and not summary.is_ours(row(checked=False))
    )
    assert summary.mean([2.0, 8.0]) == pytest.approx(4.0) and summary.mean([]) is None


def test_gates_of_dense(row):
    peers = {"torch.nn": 60.0, "cudnn_persist_static": 11.0}
    rows = every_dense_row(row, peers=peers)
    workloads = GPU_SUITES["dense"].workloads
    slow = [text for text in failures("dense", rows, workloads) if "at most" not in text]
    assert slow == []
    assert failures("dense", rows[1:], workloads)[0] == f"{workloads[0]}: no such row"
    found = failures("dense", every_dense_row(row, peers=peers, floor_us=0.5), workloads)
    assert "floor / ours: geometric mean 0.50 of 672 rows, asked 0.6" in found
    found = failures("dense", every_dense_row(row, peers={"torch.nn": 9.0, "cudnn_standard": 2.1}), workloads)
    means = [
        "fp16: best cuDNN / ours: geometric mean 2.10",
        "bf16: best cuDNN / ours: geometric mean 2.10",
        "fp32 tf32: best cuDNN",
    ]
    assert all(
        any(text.startswith(start) for text in found) for start in [*means, "torch.nn / ours: geometric mean 9.00"]
    )
    assert not any(text.startswith("fp32 ieee") for text in found)


def test_one_slow_row_fails(row):
    assert failures("networks", [row(suite="networks", hidden=80, ours_us=4.2)]) == [
        "networks lstm fp16 H=80 B=8 T=256: 0.95x the best cuDNN, asked 0.97"
    ]
    assert failures("networks", [row(suite="networks", hidden=80, ours_us=4.1)]) == []


def test_what_is_wrong_or_not_ours_fails_and_is_not_counted(row):
    rows = [
        row(checked=False, hidden=80, ours_us=100.0),
        row(hidden=80, family="torch", ours_us=100.0, plan="no kernel"),
    ]
    found = failures("networks", rows)
    assert len(found) == 2 and "failed or wrong" in found[0] and found[1].endswith("no kernel")
    assert summary.text(rows).splitlines()[1].split() == ["dense", "all", "fp16", "2", "0", "-", "-", "-", "-"]


def test_marks(row):
    marks = summary.landmarks(
        [row(ours_us=0.62), row(batch=64, ours_us=0.96), row(suite="short", ours_us=9.0), row(batch=2)]
    )
    assert [(each.passed, each.text) for each in marks] == [
        (True, "dense lstm fp16 H=256 B=8 T=256: 0.62 us a step, at most 0.62"),
        (False, "dense lstm fp16 H=256 B=64 T=256: 0.96 us a step, at most 0.95"),
    ]
    assert not summary.landmarks([row(ours_us=0.5, family="torch")])[0].passed


def test_the_claim_about_products_launched_step_by_step(row):
    def vanilla(launched):
        peers = {"cudnn_standard": 20.0, "dense_gemm_launched": launched}
        return row(suite="persistent", cell="rnn_tanh", hidden=1152, input=1152, batch=4, peers=peers)

    assert failures("persistent", [vanilla(15.0)]) == []
    assert failures("persistent", [vanilla(14.0)]) == [
        "persistent rnn_tanh fp16 H=1152 B=4 T=256: 14.0x products launched step by step, asked 15"
    ]


def test_a_row_on_one_line(row):
    assert line_of(row()) == (
        "1 us a step (cluster_forward), floor 0.7; cudnn_persist_static 4; cudnn_standard 20; torch.nn 60; 4.00x"
    )
    assert line_of(row(ours_us=None)) == "FAILED" and line_of(row(checked=False)).endswith("; WRONG")


def test_on_the_command_line(tmp_path, row, capsys):
    path = tmp_path / "rows.json"
    save([row(hidden=64, input=64, peers={"torch.nn": 60.0, "cudnn_standard": 3.0}), row(hidden=128, input=128)], path)
    arguments = ["bench", "dense", "--rows", "lstm,fp16,H=64,B=8", "--check", str(path)]
    assert main(arguments) == 1  # other dtypes have no row
    out = capsys.readouterr().out
    assert "pass  fp16: best cuDNN / ours: geometric mean 3.00 of 1 rows, asked 2.7" in out and "4 pass" not in out
    assert "FAIL  bf16: best cuDNN / ours: no row was measured" in out and "H=128" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dense", "--rows", "lstm,fp64"], "'fp64' selects no rows: give rnn_tanh, lstm, gru, fp16"),
        (["dense", "--rows", "H=7"], "no row of dense matches"),
        (["dense", "--threads", "2"], "--threads cannot go with the suite dense"),
        (["cpu", "--minutes", "2", "--commit", "x"], "--minutes and --commit cannot go with the suite cpu"),
        (["dense", "--minutes", "0"], "must be a number above 0"),
    ],
)
def test_a_wrong_command_line(arguments, said, capsys):
    assert main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_a_gpu(capsys):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main(["bench", "short", "--quick"]) == 1
    assert "PyTorch finds none" in capsys.readouterr().err


def test_a_run_writes_every_row_and_stops_in_time(monkeypatch, tmp_path, capsys):
    from prnn.bench.gpu import run
    from prnn.bench.gpu.measure import Measured
    from prnn.bench.origin import Origin
    from prnn.bench.rows import load
    from prnn.facts import GPUS

    path, clock = tmp_path / "rows.json", iter(range(0, 10**6, 10))
    monkeypatch.setattr(
        run, "_device", lambda commit: (GPUS["h200"], Origin(device="x", versions={}, commit=commit, date=""))
    )
    monkeypatch.setattr(run, "_compile", lambda workloads: None)
    monkeypatch.setattr(run.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(
        run,
        "measure",
        lambda workload, peers, seconds: Measured(
            "cluster_forward", "a plan", {"prnn": [1.0], "torch.nn": [2.0]}, {"cudnn_standard": "no"}, 0.0, True
        ),
    )
    workloads = GPU_SUITES["short"].workloads
    rows = run.run(GPU_SUITES["short"], workloads, 1.0, 2.0, path, "abc")
    assert 3 < len(rows) < 10 and load([path]) == rows and rows[0]["commit"] == "abc"
    places = [next(k for k, w in enumerate(workloads) if run_key(w) == run_row(row)) for row in rows]
    assert places == sorted(places)
    errors = capsys.readouterr().err
    assert f"stopped after 2 minutes with {len(rows)} of 144 rows" in errors and "s left]" in errors
    assert f"without cudnn_standard in {len(rows)} rows: no" in errors


def run_key(workload: GpuWorkload):
    return workload.timing == "graph", workload.dtype, workload.hidden, workload.batch, workload.steps


def run_row(row):
    return row["suite"] == "short_graph", row["dtype"], row["hidden"], row["batch"], row["steps"]
