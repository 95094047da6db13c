"""The command ``prnn``: one module a verb, each with ``add_arguments(parser)`` and ``run(args) -> int``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from prnn.errors import PrnnError

# verb -> what it does; the module of the same name in this folder is imported only when its verb is used.
VERBS = {
    "plan": "what would run for a described layer, and why",
    "info": "what a bug report needs: versions, native engine, CPU",
    "cache": "the compiled kernels and cells on disk: list, clear, or compile some in advance",
    "bench": "measure a suite of layers beside every peer that is installed, each result checked first",
    "demo": "two published networks on real speech, checked and timed against torch.nn and onnxruntime",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; `argv` is without the program's name.

    Returns:
        0; 1 if the verb could not do its work; 2 for a wrong command line.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments[0] if arguments and arguments[0] in VERBS else None
    parser = argparse.ArgumentParser(prog="prnn", description="Recurrent layers that keep their weights on the chip.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        sub = verbs.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == verb:
            module = importlib.import_module(f"prnn.cli.{name}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as leave:  # argparse has printed its message
        return int(leave.code or 0)
    try:
        return int(args.run(args))
    except PrnnError as error:
        print(f"prnn {args.verb}: {error}", file=sys.stderr)
        return 1
