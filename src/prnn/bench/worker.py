"""The process of one variant: ``python -m prnn.bench.worker NAME``. Answers pickled requests of process.py until its input ends.

A request is (name, arguments); a reply is (``ok``, value), (``cannot``, reason) or (``failed``, reason).
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from prnn.bench.variants import MODULES, CannotRun, Prepared, Variant
from prnn.bench.workload import Workload, draw


class Worker:
    """Holds one workload at a time; every public method is a request."""

    def __init__(self, name: str) -> None:
        self._prepare: Callable[..., Variant] = importlib.import_module(
            f"prnn.bench.variants.{MODULES[name][0]}"
        ).prepare
        self._call: Callable[[], object] = lambda: None
        gc.disable()  # a collection in the middle of a turn would be counted as this variant's time

    def ready(self) -> None:
        """Imported and waiting."""

    def prepare(self, workload: Workload) -> Prepared:
        """Make a workload ready to be timed."""
        self._call = lambda: None  # lets go of the workload before
        gc.collect()
        variant = self._prepare(workload, draw(workload))
        outputs = variant.outputs()
        self._call = variant.call
        return Prepared(outputs, variant.family, variant.plan)

    def calls_in(self, seconds: float) -> int:
        """How many calls fit; at least 1."""
        calls, taken = 1, self.time(1)
        while taken < seconds / 4:
            calls = max(2 * calls, int(calls * seconds / 4 / max(taken, 1e-9)))
            taken = self.time(calls)
        return max(1, round(calls * seconds / taken))

    def time(self, calls: int) -> float:
        """Seconds that `calls` calls take, after a few that bring caches and threads back from the others' turns."""
        call, clock = self._call, time.perf_counter
        if calls > 1:
            for _ in range(1 + calls // 10):
                call()
        turns = itertools.repeat(None, calls)
        start = clock()
        for _ in turns:
            call()
        return clock() - start


def serve(worker: Worker, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until the requests end."""
    while True:
        try:
            name, arguments = pickle.load(requests)
        except EOFError:
            return
        reply: tuple[str, Any]
        try:
            reply = ("ok", getattr(worker, name)(*arguments))
        except CannotRun as reason:
            reply = ("cannot", str(reason))
        except Exception as error:  # the row fails, not the run
            reply = ("failed", f"{type(error).__name__}: {error}")
        pickle.dump(reply, replies, pickle.HIGHEST_PROTOCOL)
        replies.flush()


def main() -> None:
    """Serve the variant that the command line names."""
    # What a library prints must not get between the replies.
    with os.fdopen(os.dup(1), "wb") as channel:
        os.dup2(2, 1)
        serve(Worker(sys.argv[1]), sys.stdin.buffer, channel)


if __name__ == "__main__":
    main()
