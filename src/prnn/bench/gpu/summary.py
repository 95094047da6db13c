"""What rows of a GPU's suites come to: means of ratios, times that were set as marks, and the gates that the suite `dense` must pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prnn.bench.gpu.suites import CUDNN, FALLBACK, GEMM_LAUNCHED, TORCH, TORCH_GRAPH
from prnn.bench.gpu.workload import GpuWorkload, key, key_of
from prnn.bench.rows import Row
from prnn.bench.text import microseconds

# The least geometric mean of the best cuDNN's time over ours.
CUDNN_RATIO = {"fp16": 2.7, "bf16": 10.0, "fp32 tf32": 2.2, "fp32 ieee": 2.0}
LEAST_RATIO = 0.97  # of any row
FLOOR_RATIO = 0.6  # the least mean of the floor over ours
TORCH_RATIO = 10.0  # the least mean of torch.nn's time over ours, over all dtypes
LAUNCHED_RATIO = 15.0  # a layer of products launched step by step over ours, with LAUNCHED_BATCH sequences
LAUNCHED_BATCH = 4

# (cell, dtype, hidden, batch) -> microseconds a step at most; 256 steps, input as wide as the layer
LANDMARKS = {
    ("lstm", "fp16", 256, 8): 0.62,
    ("lstm", "fp16", 256, 64): 0.95,
    ("lstm", "fp16", 512, 8): 0.85,
    ("lstm", "fp16", 512, 64): 1.6,
    ("lstm", "fp16", 1024, 8): 1.2,
    ("lstm", "fp16", 1024, 16): 1.5,
    ("lstm", "fp16", 1024, 64): 4.0,
    ("lstm", "fp16", 2048, 8): 2.4,
    ("rnn_tanh", "fp16", 1792, 4): 1.2,
    ("gru", "bf16", 1024, 1): 1.1,
}


@dataclass(frozen=True)
class Verdict:
    """Whether something is as it must be, in words."""

    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.text}"


def best_cudnn(row: Row) -> float | None:
    """Microseconds of the fastest of cuDNN's algorithms; torch.nn runs one of them, and counts where it is faster."""
    names = (TORCH, TORCH_GRAPH)
    return min((us for name, us in row["peers"].items() if name.startswith(CUDNN) or name in names), default=None)


def is_ours(row: Row) -> bool:
    """Whether this library's own kernels gave the right result."""
    return row["checked"] and row["family"] != FALLBACK


def name_of(row: Row) -> str:
    """A row in few words."""
    network = f"{row['network']}: " if "network" in row else ""
    arithmetic = f"{row['dtype']} {row['math']}".strip()
    return f"{network}{row['suite']} {row['cell']} {arithmetic} H={row['hidden']} B={row['batch']} T={row['steps']}"


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def ratios(rows: Iterable[Row], theirs: Callable[[Row], float | None]) -> list[float]:
    """A time of each row over ours, where there are both."""
    pairs = [(theirs(row), row["ours_us"]) for row in rows]
    return [time / ours for time, ours in pairs if time is not None and ours is not None]


def judge(suite: str, rows: Sequence[Row], expected: Iterable[GpuWorkload]) -> list[Verdict]:
    """Every gate of a suite, and a failure for each row that is missing, wrong, or not ours."""
    found = {key_of(row) for row in rows}
    verdicts = [Verdict(False, f"{each}: no such row") for each in expected if key(suite, each) not in found]
    wrong = [row for row in rows if not row["checked"]]
    verdicts += [Verdict(False, f"{name_of(row)}: failed or wrong, off by {row['max_error']}") for row in wrong]
    ours = [row for row in rows if is_ours(row)]
    fallbacks = [row for row in rows if row["checked"] and not is_ours(row)]
    verdicts += [Verdict(False, f"{name_of(row)}: {row['plan']}"[:200]) for row in fallbacks]
    for row in ours:
        if (best := best_cudnn(row)) is not None and row["ours_us"] is not None and best / row["ours_us"] < LEAST_RATIO:
            verdicts.append(
                Verdict(False, f"{name_of(row)}: {best / row['ours_us']:.2f}x the best cuDNN, asked {LEAST_RATIO}")
            )
    if suite == "dense":
        for arithmetic, least in CUDNN_RATIO.items():
            chosen = [row for row in ours if f"{row['dtype']} {row['math']}".strip() == arithmetic]
            verdicts.append(_mean_verdict(f"{arithmetic}: best cuDNN / ours", ratios(chosen, best_cudnn), least))
        verdicts.append(_mean_verdict("floor / ours", ratios(ours, lambda row: row["floor_us"]), FLOOR_RATIO))
        verdicts.append(_mean_verdict("torch.nn / ours", ratios(ours, _torch), TORCH_RATIO))
    if suite == "persistent":
        chosen = [row for row in ours if row["batch"] == LAUNCHED_BATCH]
        for row in chosen:
            launched = row["peers"].get(GEMM_LAUNCHED)
            if launched is not None and row["ours_us"] is not None:
                ratio = launched / row["ours_us"]
                text = f"{name_of(row)}: {ratio:.1f}x products launched step by step, asked {LAUNCHED_RATIO:g}"
                verdicts.append(Verdict(ratio >= LAUNCHED_RATIO, text))
    return verdicts + landmarks(rows)


def landmarks(rows: Sequence[Row]) -> list[Verdict]:
    """The marks whose rows are there."""
    verdicts = []
    for row in rows:
        most = LANDMARKS.get((row["cell"], row["dtype"], row["hidden"], row["batch"]))
        is_plain = row["suite"] in ("dense", "persistent") and (row["steps"], row["input"]) == (256, row["hidden"])
        if most is not None and is_plain and row["ours_us"] is not None:
            text = f"{name_of(row)}: {microseconds(row['ours_us'])} us a step, at most {most:g}"
            verdicts.append(Verdict(is_ours(row) and row["ours_us"] <= most, text))
    return verdicts


def text(rows: Sequence[Row]) -> str:
    """Means for each suite, cell and dtype, rows that are slower than cuDNN, and rows that are not this library's own."""
    heads = ["suite", "cell", "arithmetic", "rows", "ours", "cuDNN/ours", "least", "torch.nn/ours", "floor/ours"]
    lines = [heads]
    groups = dict[tuple[str, str, str], list[Row]]()
    for row in rows:
        arithmetic = f"{row['dtype']} {row['math']}".strip()
        for cell in (row["cell"], "all"):
            groups.setdefault((row["suite"], arithmetic, cell), []).append(row)
    for (suite, arithmetic, cell), chosen in sorted(groups.items()):
        ours = [row for row in chosen if is_ours(row)]
        best = ratios(ours, best_cudnn)
        means = (
            mean(best),
            min(best, default=None),
            mean(ratios(ours, _torch)),
            mean(ratios(ours, lambda r: r["floor_us"])),
        )
        lines.append(
            [
                suite,
                cell,
                arithmetic,
                str(len(chosen)),
                str(len(ours)),
                *("-" if v is None else f"{v:.2f}" for v in means),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(part.rjust(width) for part, width in zip(line, widths)) for line in lines)


def _torch(row: Row) -> float | None:
    return row["peers"].get(TORCH)


def _mean_verdict(what: str, values: list[float], least: float) -> Verdict:
    found = mean(values)
    if found is None:
        return Verdict(False, f"{what}: no row was measured")
    return Verdict(found >= least, f"{what}: geometric mean {found:.2f} of {len(values)} rows, asked {least:g}")
