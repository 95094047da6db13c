"""The cache as it is listed, cleared and filled in advance, with a compiler that only pretends."""

import json
import os
import time

import pytest

from prnn import engine
from prnn.cells import lstm
from prnn.cli import main
from prnn.errors import BuildError
from prnn.facts import GPUS
from prnn.kernels.gpu import Features
from prnn.problem import Problem
from prnn.runtime import cache
from prnn.runtime.cuda import compiler

REPORT = "ptxas info: 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
SPILLED = "ptxas info: 24 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads"
WARM = ["cache", "warm", "lstm", "--hidden", "64", "--dtype", "float16", "--device", "h200"]


@pytest.fixture(autouse=True)
def report(tmp_path, monkeypatch):
    """What the compiler reports, kernel after kernel; then that nothing was spilled."""
    reports = []
    monkeypatch.setattr(compiler, "compile_text", lambda text, arch: (b"code", reports.pop(0) if reports else REPORT))
    monkeypatch.setenv("PRNN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PRNN_NO_COMPILE", raising=False)
    return reports


def add_cell(tmp_path, name="mine-x86-64-v3-0123"):
    folder = tmp_path / "cache" / "cells" / name
    folder.mkdir(parents=True)
    (folder / "cell.so").write_bytes(b"library")
    return folder


def test_an_empty_cache():
    assert cache.entries() == []
    assert main(["cache", "list"]) == main(["cache", "clear"]) == 0


def test_kernels_and_cells_are_listed(tmp_path, report, capsys):
    report.append(SPILLED)
    compiler.cubin("a", "sm_90a", "grid_forward-lstm-512")
    add_cell(tmp_path)
    found = {each.name: each for each in cache.entries()}
    kernel, cell = found["grid_forward-lstm-512"], found["mine"]
    assert (kernel.kind, kernel.arch, kernel.local_bytes, kernel.broken) == ("kernel", "sm_90a", 24, "")
    assert kernel.size > 4 and kernel.seconds is not None and time.time() - kernel.modified < 60
    assert (cell.kind, cell.arch, cell.size, cell.broken) == ("cell", "x86-64-v3", 7, "")
    assert main(["cache", "list"]) == 0
    text = capsys.readouterr().out
    assert "spills 24 bytes a thread" in text and "mine" in text and "2 entries" in text
    assert main(["cache", "list", "--json"]) == 0
    assert {each["name"] for each in json.loads(capsys.readouterr().out)} == set(found)


@pytest.mark.parametrize("name", ["meta.json", "kernel.cubin"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b"\xff"])
def test_what_cannot_be_read_is_broken(name, content, capsys):
    compiler.cubin("a", "sm_90a", "lstm")
    path = compiler.entry_of("a", "sm_90a", "lstm") / name
    path.unlink() if content is None else path.write_bytes(content)
    (entry,) = cache.entries()
    assert entry.broken and entry.name == "lstm" and entry.arch == "sm_90a"
    assert main(["cache", "list"]) == 0 and "broken: " in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0 and cache.entries() == []


def test_strangers_and_empty_cells_are_broken_and_can_be_cleared(tmp_path):
    (add_cell(tmp_path) / "cell.so").write_bytes(b"")
    (tmp_path / "cache" / "cells" / "note.txt").write_text("?")
    (tmp_path / "cache" / "kernels").mkdir()
    (tmp_path / "cache" / "kernels" / "gone").symlink_to(tmp_path / "nowhere")
    assert all(each.broken for each in cache.entries()) and len(cache.entries()) == 3
    assert main(["cache", "clear"]) == 0 and cache.entries() == []


def test_clear_older_than(tmp_path, capsys):
    old, young = add_cell(tmp_path, "old-neon-0"), add_cell(tmp_path, "young-neon-0")
    os.utime(old, (time.time() - 10 * 86400,) * 2)
    assert main(["cache", "clear", "--older-than", "7"]) == 0
    assert "removed 1 entry" in capsys.readouterr().out
    assert not old.exists() and young.exists()


def test_clear_leaves_what_another_process_is_writing(tmp_path, capsys):
    folder = add_cell(tmp_path, ".building-1")
    assert main(["cache", "clear"]) == 1 and "still being written" in capsys.readouterr().err
    os.utime(folder, (0, 0))
    assert main(["cache", "clear"]) == 0 and not folder.exists()


def test_warm_compiles_what_would_be_chosen(capsys):
    assert main(WARM) == 0
    assert len(cache.entries()) == 2  # with and without masks
    chosen = engine.plan_gpu(Problem(lstm, 64, 64, dtype="float16"), GPUS["h200"], 1, 100)
    assert capsys.readouterr().out.startswith(f"{chosen.family} ({chosen.config}) for sm_90a")


def test_warm_passes_over_what_spills(report):
    report += [SPILLED, SPILLED]
    problem = Problem(lstm, 64, 64, dtype="float16")
    plan, entry = engine.compile_gpu(problem, GPUS["h200"], Features(), 8, 100)
    assert sum("it spills 24 bytes" in each.refused for each in plan.candidates) == 2 and not entry.local_bytes


def test_warm_where_the_cache_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PRNN_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="PRNN_CACHE_DIR names another folder"):
        engine.compile_gpu(Problem(lstm, 64, 64, dtype="float16"), GPUS["h200"], Features())
    assert main(WARM) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["cache"], 2, "ACTION"),
        (["cache", "clear", "--older-than", "-1"], 2, "must be a number of days"),
        (["cache", "warm", "nothing", "--hidden", "8", "--device", "h200"], 2, "no built-in cell 'nothing'"),
        ([*WARM, "--backend", "nothing"], 2, "backend must be"),
    ],
)
def test_wrong_command_lines(arguments, code, message, capsys):
    assert main(arguments) == code
    assert message in capsys.readouterr().err
