"""The cache of kernels, with a compiler that only pretends."""

import json
import sys

import pytest

from prnn.errors import BuildError, MissingDependency
from prnn.runtime.cuda import compiler


@pytest.fixture(autouse=True)
def compiled(tmp_path, monkeypatch):
    """The texts that were compiled, in order."""
    texts = []

    def pretend(text, arch):
        texts.append(text)
        return f"{arch}:{text}".encode(), "Used 7 registers"

    monkeypatch.setattr(compiler, "compile_text", pretend)
    monkeypatch.setenv("PRNN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PRNN_NO_COMPILE", raising=False)
    return texts


def test_a_text_is_compiled_once(compiled):
    assert compiler.cubin("a", "sm_90a", "lstm") == compiler.cubin("a", "sm_90a", "lstm") == b"sm_90a:a"
    assert compiled == ["a"]
    compiler.cubin("a", "sm_100", "lstm")
    compiler.cubin("b", "sm_90a", "lstm")
    assert compiled == ["a", "a", "b"]


def test_an_entry_can_be_looked_into():
    compiler.cubin("a", "sm_90a", "lstm")
    entry = compiler.entry_of("a", "sm_90a", "lstm")
    assert sorted(each.name for each in entry.iterdir()) == ["kernel.cu", "kernel.cubin", "meta.json"]
    assert entry.name.startswith("lstm-sm_90a-") and (entry / "kernel.cu").read_text() == "a"
    assert json.loads((entry / "meta.json").read_text())["log"] == "Used 7 registers"
    assert list(entry.parent.iterdir()) == [entry]  # nothing temporary is left


@pytest.mark.parametrize("damage", ["kernel.cubin", "meta.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_an_unreadable_entry_is_a_miss(compiled, damage, content):
    compiler.cubin("a", "sm_90a", "lstm")
    path = compiler.entry_of("a", "sm_90a", "lstm") / damage
    path.unlink() if content is None else path.write_bytes(content)
    assert compiler.cubin("a", "sm_90a", "lstm") == b"sm_90a:a"
    assert compiled == ["a", "a"]
    compiler.cubin("a", "sm_90a", "lstm")
    assert compiled == ["a", "a"]  # repaired


def test_compiling_can_be_forbidden(monkeypatch):
    compiler.cubin("a", "sm_90a", "lstm")
    monkeypatch.setenv("PRNN_NO_COMPILE", "1")
    assert compiler.cubin("a", "sm_90a", "lstm") == b"sm_90a:a"
    with pytest.raises(BuildError, match=r"kernel lstm-sm_90a-\w+ is not in the cache .* and PRNN_NO_COMPILE forbids"):
        compiler.cubin("b", "sm_90a", "lstm")


def test_a_cache_that_cannot_be_written_costs_time_only(compiled, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert compiler.cubin("a", "sm_90a", "lstm") == compiler.cubin("a", "sm_90a", "lstm") == b"sm_90a:a"
    assert compiled == ["a", "a"]


def test_without_the_compiler_the_extra_is_named(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(MissingDependency, match=r'pip install "persistent-rnn\[cuda\]"'):
        compiler.compile_text("a", "sm_90a")
