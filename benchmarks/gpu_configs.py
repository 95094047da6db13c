"""Times every configuration of a family on a GPU, to hold the plan's estimates against: ``python benchmarks/gpu_configs.py FAMILY``.

One JSON line for each configuration that fits: microseconds of the device for a step of a whole call, beside the estimate. A configuration
whose output differs from torch.nn's is marked wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch

from prnn import engine
from prnn.bench.gpu.timing import DeviceTimer
from prnn.bench.gpu.truth import TIMES_APART, TOLERANCE, apart
from prnn.bench.gpu.variants import draw, eager, float32_math, plan_of
from prnn.bench.gpu.workload import CELLS, GpuWorkload
from prnn.cells import BUILTIN
from prnn.errors import PrnnError
from prnn.plan import GPU_FAMILIES
from prnn.plan import gpu as planner
from prnn.problem import Problem

ROUNDS = 7
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def lines(family: Any, workload: GpuWorkload) -> Any:
    """A line for each configuration, as they are timed."""
    facts, configs = engine.driver.probe(0), family.configs
    dtype, math = DTYPES[workload.dtype], workload.math or "ieee"
    problem = Problem(BUILTIN[workload.cell], workload.input, workload.hidden, dtype=dtype, math=math)
    data = draw(workload)
    want = eager("torch.nn", workload, data)()
    call = eager("prnn", workload, data)
    families = planner.GPU_FAMILIES
    planner.GPU_FAMILIES = (family,)
    try:
        for config in configs(problem, facts):
            if family.refuse(problem, config, facts):
                continue
            family.configs = lambda problem, facts, config=config: (config,)
            engine._prepare_gpu.cache_clear()
            line = {"workload": str(workload), "config": vars(config)}
            try:
                name, plan = plan_of(call)
                if name != family.NAME:
                    yield line | {"refused": plan[-200:]}
                    continue
                timer = DeviceTimer(call)
                us = statistics.median(timer.us() for _ in range(ROUNDS)) / workload.steps
                off = apart(call(), want)
            except PrnnError as error:
                yield line | {"refused": str(error)[-200:]}
                continue
            right = off <= TIMES_APART * TOLERANCE[workload.arithmetic]
            yield line | {"us": round(us, 4), "planned": plan.rsplit(": ", 1)[-1], **({} if right else {"WRONG": off})}
    finally:
        family.configs, planner.GPU_FAMILIES = configs, families
        engine._prepare_gpu.cache_clear()


def main() -> None:
    """Print the lines of all sizes."""
    families = {family.NAME: family for family in GPU_FAMILIES}
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("family", choices=families)
    parser.add_argument("--cell", choices=CELLS, default="lstm")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--math", choices=("tf32", "ieee"), default="tf32", help="of fp32")
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--steps", type=int, default=256)
    args = parser.parse_args()
    math = args.math if args.dtype == "fp32" else ""
    with torch.no_grad(), float32_math(math):
        for hidden in args.hidden:
            for batch in args.batch:
                workload = GpuWorkload(args.cell, args.dtype, math, hidden, batch, args.steps, input=hidden)
                for line in lines(families[args.family], workload):
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
