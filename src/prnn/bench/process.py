"""A variant in a lasting process of its own, so that no library shares threads, settings or memory with another."""

from __future__ import annotations

import pickle
import select
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import IO, Any

from prnn import env
from prnn.bench.variants import MODULES, OURS, CannotRun
from prnn.errors import MissingDependency


class VariantFailed(Exception):
    """A variant's process died, took too long or raised an error; the message says which."""


def installed(name: str) -> bool:
    """Whether this Python has what a variant needs."""
    return all(find_spec(package) is not None for package in MODULES[name][1])


def require() -> None:
    """Raise MissingDependency unless this library and the reference can run."""
    if not installed(OURS):
        raise MissingDependency('prnn bench needs torch: install with  pip install "persistent-rnn[bench]"')


class VariantProcess:
    """Asks a worker (worker.py) and starts it again after it failed.

    Args:
        name: of variants.MODULES.
        threads: every library's setting, in place before it is imported.
        patience: seconds that a request may take.
    """

    def __init__(self, name: str, threads: int, patience: float = 300.0) -> None:
        self.name = name
        self._threads, self._patience = threads, patience
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def ask(self, request: str, *arguments: Any) -> Any:
        """A request of worker.Worker.

        Raises:
            CannotRun: the variant does not do this workload.
            VariantFailed: as it says.
        """
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((request, arguments), process.stdin)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], self._patience)[0]:
                self.close()
                raise VariantFailed(f"no answer in {self._patience:g} s")
            kind, value = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise VariantFailed(self._last_words()) from error
        if kind == "cannot":
            raise CannotRun(value)
        if kind == "failed":
            raise VariantFailed(value)
        return value

    def close(self) -> None:
        """End the process; a later request starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, read after the process has died
        self._process = subprocess.Popen(
            [sys.executable, "-m", "prnn.bench.worker", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env.with_threads(self._threads),
        )
        return self._process

    def _last_words(self) -> str:
        """How the process ended, and the last line that it wrote; what is left of it is cleared away."""
        assert self._process is not None and self._errors is not None
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            status = None
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        died = f"killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        return f"its process {died}" + (f": {lines[-1]}" if lines else "")
