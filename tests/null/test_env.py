"""Settings from the environment, and that nothing else reads it."""

import re
from pathlib import Path

import pytest

import prnn
from prnn import env
from prnn.errors import PrnnError

SOURCE = Path(prnn.__file__).parent


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in ("PRNN_CACHE_DIR", "XDG_CACHE_HOME", "PRNN_NUM_THREADS", "PRNN_NO_COMPILE"):
        monkeypatch.delenv(name, raising=False)


def test_cache_dir_in_order_of_precedence(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert env.cache_dir() == tmp_path / ".cache" / "prnn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert env.cache_dir() == tmp_path / "xdg" / "prnn"
    monkeypatch.setenv("PRNN_CACHE_DIR", str(tmp_path / "own"))
    assert env.cache_dir() == tmp_path / "own"
    assert list(tmp_path.iterdir()) == [], "asking creates nothing"


@pytest.mark.parametrize(("text", "value"), [(None, None), ("", None), ("1", 1), ("16", 16)])
def test_num_threads(monkeypatch, text, value):
    if text is not None:
        monkeypatch.setenv("PRNN_NUM_THREADS", text)
    assert env.num_threads() == value


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_num_threads_refuses_anything_but_a_positive_number(monkeypatch, text):
    monkeypatch.setenv("PRNN_NUM_THREADS", text)
    with pytest.raises(PrnnError, match="PRNN_NUM_THREADS must be a whole number of at least 1, got "):
        env.num_threads()


@pytest.mark.parametrize(("text", "value"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_compile_forbidden(monkeypatch, text, value):
    if text is not None:
        monkeypatch.setenv("PRNN_NO_COMPILE", text)
    assert env.compile_forbidden() is value


def test_no_other_file_reads_the_environment():
    readers = [
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if re.search(
            r"\bos\.(environ|getenv|putenv)|from os import .*(environ|getenv)", path.read_text(encoding="utf-8")
        )
    ]
    assert readers == ["env.py"]


def test_no_c_source_reads_the_environment():
    sources = [path for path in SOURCE.rglob("*") if path.suffix in (".h", ".cpp")]
    assert [path.name for path in sources if "getenv" in path.read_text(encoding="utf-8")] == []


def test_a_child_with_threads_keeps_the_rest_of_the_environment(monkeypatch):
    monkeypatch.setenv("PRNN_CACHE_DIR", "somewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    child = env.with_threads(2)
    assert child["PRNN_CACHE_DIR"] == "somewhere"
    assert {child[name] for name in ("PRNN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"2"}
