"""``prnn demo``: two published recurrent networks on real speech, timed beside torch.nn and onnxruntime."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="write the result as JSON; without FILE print only that"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("prnn_demo.png"), metavar="FILE.png", help="picture to draw"
    )


def run(args: argparse.Namespace) -> int:
    from prnn.demo.requirements import require

    require()
    from prnn.demo.run import run as run_demo

    return run_demo(args.output, args.json)
