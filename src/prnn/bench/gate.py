"""What rows must reach: the best peer's time over ours, on one thread: the targets of the CPU engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prnn.bench.rows import Row, workload_of
from prnn.bench.workload import Workload

NEAR_FLOOR = 1.1  # a row that takes at most this much of its floor has nothing left to win
# Of the time. A run that scatters more than this proves nothing, so it earns no more.
MOST_NOISE = 0.05


def required(workload: Workload) -> float | None:
    """The least ratio; None where nothing is asked, as of more threads than one."""
    if workload.threads != 1:
        return None
    lstm, small, single = workload.cell == "lstm", workload.hidden <= 128, workload.batch == 1
    if workload.mode == "training":
        return 1.15 if lstm else 1.3
    asked = []
    if workload.streaming:
        if single:
            asked.append(3.0 if small else 1.0 if workload.hidden >= 1024 else 1.6 if workload.cell == "gru" else 1.3)
        elif small:
            asked.append(1.3)
    elif single:
        asked += [1.4] if small else []
    else:
        asked.append(1.0 if lstm or workload.hidden > 256 else 1.1)
    if workload.cell == "rnn_tanh" and workload.hidden <= 256 and workload.batch <= 4:
        asked.append(1.5)
    return max(asked, default=None)


@dataclass(frozen=True)
class Verdict:
    """Whether a row does what is asked of it, and why in words.

    Attributes:
        asked: the least ratio; None: nothing.
    """

    workload: Workload
    passed: bool
    asked: float | None
    why: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.workload}: {self.why}"


def judge(row: Row) -> Verdict:
    """Apply the table to a row. One that is not right, or was not measured, fails whatever is asked.

    Inference is held against the best peer, training against torch.nn. A row within 10 % of its floor is a tie and passes, and so
    does one that would reach its ratio if this library took as little as in its best round, up to MOST_NOISE less.
    """
    workload, asked = workload_of(row), required(workload_of(row))
    ours, spread = row["ours_us"], row["ours_spread"]
    if ours is None or spread is None:
        return Verdict(workload, False, asked, "this library failed")
    if not row["checked"]:
        return Verdict(workload, False, asked, f"its result was wrong, off by {row['max_error']}")
    rival = "torch.nn" if workload.mode == "training" else row["best_peer"]
    if asked is None:
        return Verdict(workload, True, asked, "nothing is asked")
    if rival is None or rival not in row["peers"]:
        return Verdict(workload, False, asked, "no peer was measured")
    ratio = row["peers"][rival] / ours
    found = f"{ratio:.2f}x {rival}, asked {asked:.2f}x"
    if ratio >= asked:
        return Verdict(workload, True, asked, found)
    if ours <= NEAR_FLOOR * row["floor_us"]:
        return Verdict(workload, True, asked, f"{found}: a tie, {ours / row['floor_us']:.2f} of its floor")
    noise = min(1 - spread[0] / ours, MOST_NOISE)
    if ratio / (1 - noise) >= asked:
        return Verdict(workload, True, asked, f"{found}: a tie, within the noise of {noise:.1%}")
    return Verdict(workload, False, asked, found)


def judge_all(rows: Sequence[Row], expected: Iterable[Workload]) -> list[Verdict]:
    """A verdict for each row, and one that fails for each expected workload without a row."""
    measured = {workload_of(row) for row in rows}
    missing = [Verdict(each, False, required(each), "no such row") for each in expected if each not in measured]
    return [judge(row) for row in rows] + missing
