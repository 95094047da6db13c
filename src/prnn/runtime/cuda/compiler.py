"""Compile a kernel's text with NVRTC, once: the cache is a folder for each (text, options, compiler, architecture).

An entry holds ``kernel.cu`` beside ``kernel.cubin`` and ``meta.json``. It is made under a temporary name and renamed, so that two
processes may compile at once; an entry that cannot be read is a miss.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

from prnn import env
from prnn.errors import BuildError, MissingDependency

SCHEMA = 1
STANDARD = "c++17"
_DISTRIBUTIONS = ("cuda-core", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13")
MISSING = (
    'kernels are compiled with NVRTC through cuda-core, which is not installed; pip install "persistent-rnn[cuda]"'
)


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """What compiles here, without loading it; empty if nothing does."""
    if util.find_spec("cuda") is None or util.find_spec("cuda.core") is None:
        return ""
    found = []
    for name in _DISTRIBUTIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found) or "cuda-core of unknown version"


def entry_of(text: str, arch: str, label: str) -> Path:
    """The folder of a kernel in the cache, whether it exists or not."""
    parts = (str(SCHEMA), STANDARD, compiler_version(), arch, text)
    return (
        env.cache_dir() / "kernels" / f"{label}-{arch}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}"
    )


def cubin(text: str, arch: str, label: str) -> bytes:
    """The machine code of a kernel, from the cache or compiled now.

    Args:
        label: the front of the entry's name, for whoever looks into the cache.

    Raises:
        BuildError: it is not in the cache and compiling is forbidden, or NVRTC refuses the text.
        MissingDependency: it is not in the cache and there is no compiler.
    """
    entry = entry_of(text, arch, label)
    cached = _read(entry)
    if cached is not None:
        return cached
    if env.compile_forbidden():
        raise BuildError(
            f"kernel {entry.name} is not in the cache {entry.parent} and PRNN_NO_COMPILE forbids compiling it"
        )
    start = time.perf_counter()
    code, log = compile_text(text, arch)
    meta = {
        "schema": SCHEMA,
        "arch": arch,
        "compiler": compiler_version(),
        "seconds": round(time.perf_counter() - start, 3),
        "sha256": hashlib.sha256(code).hexdigest(),
        "log": log,
    }
    _write(entry, text, code, meta)
    return code


def compile_text(text: str, arch: str) -> tuple[bytes, str]:
    """(machine code, the compiler's report of registers and spills).

    Raises:
        MissingDependency: there is no compiler.
        BuildError: NVRTC refuses the text.
    """
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError as error:
        raise MissingDependency(f"{MISSING} ({error})") from error
    log = io.StringIO()
    options = ProgramOptions(arch=arch, std=STANDARD, ptxas_options=["-v"])
    try:
        compiled = Program(text, "c++", options).compile("cubin", logs=log)
    except Exception as error:  # cuda.core's own exceptions have changed names between versions
        raise BuildError(f"compiling a kernel for {arch} failed: {error}\n{log.getvalue()}") from error
    return bytes(compiled.code), log.getvalue()


def _read(entry: Path) -> bytes | None:
    """The code of a whole, untouched entry."""
    try:
        code = (entry / "kernel.cubin").read_bytes()
        meta = json.loads((entry / "meta.json").read_text(encoding="utf-8"))
        whole = meta["sha256"] == hashlib.sha256(code).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return code if whole else None


def _write(entry: Path, text: str, code: bytes, meta: dict[str, object]) -> None:
    """Put an entry in place; a cache that cannot be written costs time, not the call."""
    work = None
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".building-"))
        (work / "kernel.cu").write_text(text, encoding="utf-8")
        (work / "kernel.cubin").write_bytes(code)
        (work / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        if entry.exists():  # unreadable, or another process was faster: both are as good as the new one or worse
            shutil.rmtree(entry, ignore_errors=True)
        os.rename(work, entry)
    except OSError:
        pass
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
