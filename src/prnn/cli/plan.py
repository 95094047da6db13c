"""``prnn plan``: what would run for a described layer, and why. Nothing is run, loaded or compiled."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any

from prnn import engine
from prnn.cells import BUILTIN, Cell, find
from prnn.cli.info import measure
from prnn.facts import GPUS
from prnn.plan import GpuPlan, Plan
from prnn.problem import DTYPES, HALF_DTYPES, WEIGHTS, Problem


def add_layer_arguments(parser: argparse.ArgumentParser) -> None:
    """What describes a layer and how it is called."""
    parser.add_argument("cell", nargs="?", metavar="CELL", help=f"a built-in cell: {', '.join(BUILTIN)}")
    parser.add_argument("--cell", dest="cell_path", metavar="MODULE:NAME", help="a cell of your own, found by import")
    parser.add_argument("--hidden", type=int, required=True, metavar="H", help="units of the layer")
    parser.add_argument("--input", type=int, metavar="I", help="width of its input (default: H)")
    parser.add_argument(
        "--proj", type=int, default=0, metavar="P", help="width of the projected output (default: none)"
    )
    parser.add_argument("--batch", type=_positive, default=1, metavar="B", help="sequences at a time (default: 1)")
    parser.add_argument("--steps", type=_positive, default=100, metavar="T", help="timesteps a call (default: 100)")
    parser.add_argument(
        "--dtype", choices=(*DTYPES, *HALF_DTYPES, "tf32"), default="float32", help="tf32: float32 tensors"
    )
    parser.add_argument("--bidirectional", action="store_true", help="both directions in one launch (GPU)")
    parser.add_argument("--backend", default="auto", metavar="FAMILY", help="insist on a kernel family (default: auto)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add_layer_arguments(parser)
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="same", help="what the matrices are kept in (default: same)"
    )
    parser.add_argument("--device", choices=["cpu", *GPUS], default="cpu", help="a GPU need not be at hand")
    parser.add_argument(
        "--reserve-sms", type=int, default=0, metavar="N", help="SMs left to others (GPU; see prnn.set_reserved_sms)"
    )
    parser.add_argument("--training", action="store_true", help="keep what the backward pass needs")
    parser.add_argument(
        "--stream", action="store_true", help="plan a prnn.Stream: one step a call, weights packed once"
    )
    parser.add_argument("--explain", action="store_true", help="why, what a step takes, and every other candidate")
    parser.add_argument(
        "--measure", action="store_true", help="estimate with the rates of this machine, measured now (CPU)"
    )
    parser.add_argument("--json", action="store_true", help="the same as data")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    try:
        plan = _plan(args)
    except ValueError as error:  # sizes and names that make no sense together
        print(f"prnn plan: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(_as_data(plan), indent=2))
    else:
        print(plan.explain() if args.explain else plan)
    return 0


def problem_of(args: argparse.Namespace) -> Problem:
    """The layer that `add_layer_arguments` describes.

    Raises:
        ValueError: sizes and names that make no sense together.
        CellError: there is no such cell.
    """
    input_size = args.hidden if args.input is None else args.input
    dtype, math = ("float32", "tf32") if args.dtype == "tf32" else (args.dtype, "ieee")
    return Problem(_cell(args.cell, args.cell_path), input_size, args.hidden, args.proj, dtype=dtype, math=math)


def _plan(args: argparse.Namespace) -> Plan | GpuPlan:
    problem = dataclasses.replace(problem_of(args), training=args.training, weights=args.weights)
    if args.device != "cpu":
        if args.measure:
            raise ValueError("--measure is for this machine's CPU")
        directions = 2 if args.bidirectional else 1
        facts = GPUS[args.device].without(args.reserve_sms)
        return engine.plan_gpu(problem, facts, args.batch, args.steps, directions, args.backend)
    rates = measure() if args.measure else None
    return engine.plan(problem, args.batch, 1 if args.stream else args.steps, args.backend, args.stream, rates)


def _cell(name: str | None, path: str | None) -> Cell:
    if (name is None) == (path is None):
        raise ValueError(f"give one cell: a built-in one ({', '.join(BUILTIN)}) or --cell MODULE:NAME")
    if path is not None:
        sys.path.insert(0, "")  # a module in the current folder is found, as with python -m
        return find(path)
    if name not in BUILTIN:
        raise ValueError(
            f"no built-in cell {name!r}; there are {', '.join(BUILTIN)}; your own comes with --cell MODULE:NAME"
        )
    return BUILTIN[name]


def _as_data(plan: Plan | GpuPlan) -> dict[str, Any]:
    problem = {field.name: getattr(plan.problem, field.name) for field in dataclasses.fields(plan.problem)}
    return {
        "problem": {**problem, "cell": plan.problem.cell.name, "cell_digest": plan.problem.cell.digest},
        "batch": plan.batch,
        "steps": plan.steps,
        "family": plan.family,
        "config": dataclasses.asdict(plan.config),
        "step_us": plan.step_us,
        "rates": dataclasses.asdict(plan.rates) if isinstance(plan, Plan) and plan.rates else None,
        "weights_in": plan.cost.home if isinstance(plan, Plan) else plan.weights_in,
        "candidates": [
            {**dataclasses.asdict(each), "step_us": each.cost.step_us if each.cost else None}
            for each in plan.candidates
        ],
    }
