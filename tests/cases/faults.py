"""Inject a fault into the library: a function replaced by another, or a line of the native engine rewritten.

A native fault is built for the baseline instruction set alone and kept in the folder of pytest's cache, by content.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/prnn/kernels/cpu"
MUTANTS = ROOT / ".pytest_cache/mutants"


@dataclass(frozen=True)
class Replaced:
    """Functions of the library give way to what `make` makes of the original.

    Attributes:
        targets: ``module:attribute``, the attribute with dots where it is a member.
    """

    targets: tuple[str, ...]
    make: Callable[[Any], Any]

    def inject(self, patch: pytest.MonkeyPatch) -> None:
        for target in self.targets:
            module, _, path = target.partition(":")
            owner: Any = importlib.import_module(module)
            *owners, name = path.split(".")
            for each in owners:
                owner = getattr(owner, each)
            patch.setattr(owner, name, self.make(getattr(owner, name)))


@dataclass(frozen=True)
class Rewritten:
    """A text of the native engine's source gives way to another."""

    file: str
    before: str
    after: str

    def inject(self, patch: pytest.MonkeyPatch) -> None:
        from prnn.runtime.cpu import library

        path = self.build()
        patch.setattr(library, "library_path", lambda: path)

    def build(self) -> Path:
        """The library with the fault; compiled if it is not there."""
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.iterdir()) if path.is_file()}
        if texts[self.file].count(self.before) != 1:
            raise LookupError(f"{self.file} does not hold exactly once: {self.before}")
        texts[self.file] = texts[self.file].replace(self.before, self.after)
        # The instruction sets that are not built must not be asked for.
        texts["api.cpp"] = texts["api.cpp"].replace("#if defined(__x86_64__)", "#if 0")
        from prnn.cells.emit_builtin import emit_builtin

        texts["cells.gen.h"] = emit_builtin()
        digest = hashlib.sha256(repr(texts).encode()).hexdigest()[:16]
        place = MUTANTS / hashlib.sha256(repr(self).encode()).hexdigest()[:8]
        built = place / f"{digest}.so"
        if built.exists():
            return built
        shutil.rmtree(place, ignore_errors=True)  # those of older sources
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            for name, text in texts.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            flags = ["-std=gnu++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
            names = ["engine_isa.cpp", "api.cpp", "pool.cpp"]
            subprocess.run(["c++", *flags, "-o", "mutant.so", *names], cwd=folder, check=True)
            (Path(folder) / "mutant.so").rename(built)
        return built


Fault = Union[Replaced, Rewritten]

_active: Fault | None = None


@contextlib.contextmanager
def injected(fault: Fault) -> Iterator[None]:
    """The library with the fault, for a while."""
    global _active
    with pytest.MonkeyPatch.context() as patch:
        try:
            fault.inject(patch)
            _active = fault
            _forget()
            yield
        finally:
            _active = None
            patch.undo()
            _forget()


def prelude() -> str:
    """Code that injects the active fault into another interpreter."""
    if _active is None:
        return ""
    from cases.table import CASES

    index = next(i for i, case in enumerate(CASES) if case.fault is _active)
    return f"import pytest\nfrom cases.table import CASES\nCASES[{index}].fault.inject(pytest.MonkeyPatch())\n"


def _forget() -> None:
    """Empty the caches that hold what was loaded, compiled or planned with another library."""
    from prnn import engine
    from prnn.ops import arguments
    from prnn.runtime.cpu import compiler, library

    for cached in (arguments.plan_of, engine._prepare, compiler.native_cell, library.load):
        cached.cache_clear()
