"""Run the GPU's tests, then time LSTM forward beside torch.nn: ``python benchmarks/gpu_first_look.py [--no-tests] [--json FILE]``.

A row is one JSON line; FILE gets the same in the schema of prnn.bench. Every output is compared with the float64 reference before it is
timed; the two sides take turns. Times are of the device, a whole call: input product, launches, states.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "cuda")]

import cuda_cases  # noqa: E402
import prnn  # noqa: E402
from prnn import cells, engine  # noqa: E402
from prnn.bench.origin import Origin, origin  # noqa: E402
from prnn.bench.rows import Row, save  # noqa: E402
from prnn.errors import UnsupportedProblem  # noqa: E402
from prnn.kernels.gpu import Features  # noqa: E402
from prnn.problem import Problem  # noqa: E402

STEPS, ROUNDS = 256, 15


def device_us(call) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(4_000_000)  # until everything is enqueued: the time is the device's, not Python's
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def row(dtype: torch.dtype, hidden: int, batch: int) -> dict[str, object]:
    x, states, weights = cuda_cases.draw(cells.lstm, dtype, hidden, batch, STEPS)
    theirs = torch.nn.LSTM(hidden, hidden).to("cuda", dtype).eval()
    ours = prnn.nn.LSTM(hidden, hidden).to("cuda", dtype).eval()
    for layer in (theirs, ours):
        for parameter, weight in zip(layer.parameters(), weights):
            parameter.data.copy_(weight)
    rows = [0, batch - 1]
    want, _ = cuda_cases.expected(cells.lstm, x[:12], states, weights, rows=rows)
    errors, times = {}, {"prnn": [], "torch": []}
    hx = tuple(states)
    start = time.perf_counter()
    ours(x, hx)
    torch.cuda.synchronize()
    first_call_s = time.perf_counter() - start
    calls = {"prnn": lambda: ours(x, hx), "torch": lambda: theirs(x, hx)}
    for name, call in calls.items():
        errors[name] = cuda_cases.worst(call()[0][:12, rows], want)
    if not errors["prnn"] <= cuda_cases.TOLERANCE[dtype]:
        return {"H": hidden, "B": batch, "dtype": str(dtype), "WRONG": errors}
    whole = float((calls["prnn"]()[0].float() - calls["torch"]()[0].float()).abs().max())
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(device_us(call) / STEPS)
    problem = Problem(cells.lstm, hidden, hidden, dtype=str(dtype).removeprefix("torch."))
    executable = engine.prepare_gpu(problem, 0, Features(), batch, STEPS)
    kernel, plan = executable.kernel, executable.plan
    return {
        "cell": "lstm",
        "dtype": problem.dtype,
        "H": hidden,
        "B": batch,
        "T": STEPS,
        **{f"{name}_us": round(statistics.median(each), 4) for name, each in times.items()},
        **{f"{name}_us_min_max": [round(min(each), 4), round(max(each), 4)] for name, each in times.items()},
        "planned_us": round(plan.step_us, 4),
        "floor_us": plan.cost.exchange_us,
        "family": plan.family,
        "config": str(plan.config),
        "registers": [kernel.registers, plan.chosen.resources.registers],
        "active_clusters": kernel.active_clusters(plan.config.cluster_size),
        "error": errors,
        "difference_over_all_steps": whole,
        "first_call_s": round(first_call_s, 3),  # with compiling, unless the kernel was in the cache
    }


def as_row(line: dict[str, object], where: Origin) -> Row:
    """A line of `row` in the schema."""
    ours, torchs = line["prnn_us"], line["torch_us"]
    return {
        "suite": "dense",
        **where,
        "cell": line["cell"],
        "dtype": {"float16": "fp16", "bfloat16": "bf16"}[line["dtype"]],
        "math": "",
        "pass": "forward",
        "hidden": line["H"],
        "input": line["H"],
        "layers": 1,
        "directions": 1,
        "projection": 0,
        "heads": 1,
        "batch": line["B"],
        "steps": line["T"],
        "threads": 1,
        "family": line["family"],
        "plan": f"{line['family']} ({line['config']}): {line['planned_us']:.2f} us a step",
        "ours_us": ours,
        "ours_spread": line["prnn_us_min_max"],
        "floor_us": line["floor_us"],
        "floor_by": "exchange",
        "peers": {"torch.nn": torchs},
        "best_peer": "torch.nn",
        "ratio": torchs / ours,
        "max_error": line["error"]["prnn"],
        "checked": True,  # else there is no line with times
    }


def every_config(dtype: torch.dtype, hidden: int, batch: int) -> None:
    """Times of every configuration that fits, to hold the plan's estimates against."""
    family, facts = engine.GPU_FAMILIES[0], engine.driver.probe(0)
    problem = Problem(cells.lstm, hidden, hidden, dtype=str(dtype).removeprefix("torch."))
    arguments = cuda_cases.draw(cells.lstm, dtype, hidden, batch, STEPS)
    saved = family.configs
    for config in saved(problem, facts):
        if family.refuse(problem, config, facts) or (config.batch_tiles > 1 and batch <= 4 * config.batch_tiles):
            continue
        family.configs = lambda problem, facts, config=config: (config,)
        engine._prepare_gpu.cache_clear()
        try:
            cuda_cases.run(cells.lstm, *arguments)
            us = statistics.median(device_us(lambda: cuda_cases.run(cells.lstm, *arguments)) / STEPS for _ in range(7))
            planned = engine.prepare_gpu(problem, 0, Features(), batch, STEPS).plan.step_us
            line = {
                "H": hidden,
                "B": batch,
                "config": vars(config),
                "us": round(us, 4),
                "planned_us": round(planned, 4),
            }
        except UnsupportedProblem as error:
            line = {"H": hidden, "B": batch, "config": vars(config), "refused": str(error).splitlines()[-1][-160:]}
        print(json.dumps({"every_config": line}), flush=True)
    family.configs = saved
    engine._prepare_gpu.cache_clear()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-tests", action="store_true", help="time only")
    parser.add_argument("--configs", action="store_true", help="also time every configuration at a few sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--commit", help="of the code, where this folder is a copy without its history")
    args = parser.parse_args()
    failed = 0
    if not args.no_tests:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:benchmark",
            "-n",
            "8",
            str(ROOT / "tests" / "cuda"),
        ]
        failed = subprocess.run(command, cwd=ROOT, check=False).returncode
    warnings.filterwarnings("ignore", message="RNN module weights")
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "cudnn": torch.backends.cudnn.version(),
            }
        )
    )
    where = origin(engine.driver.probe(0))
    where["versions"] |= {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
    where["commit"] = args.commit or where["commit"]
    lines = []
    with torch.no_grad():
        for dtype in (torch.float16, torch.bfloat16):
            for hidden in (128, 256, 512):
                for batch in (1, 8, 16, 64):
                    lines.append(row(dtype, hidden, batch))
                    print(json.dumps(lines[-1]), flush=True)
                    if args.json:
                        save([as_row(each, where) for each in lines if "WRONG" not in each], args.json)
        if args.configs:
            for hidden, batch in ((128, 8), (256, 8), (256, 64), (512, 8), (512, 64)):
                every_config(torch.float16, hidden, batch)
    return failed or any("WRONG" in each for each in lines)


if __name__ == "__main__":
    raise SystemExit(main())
