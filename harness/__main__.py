"""The `assay` command: `assay engines | claims | faults [--json]`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from harness import tables
from harness.core.claims import ClaimError, read_claims
from harness.core.faults import all_faults
from harness.core.registry import Registry, adapter_spec, builtin_specs, entry_point_specs
from harness.core.spec import RegistryError

SUITES = Path(__file__).parents[1] / "suites"


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        args.show(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (RegistryError, ClaimError) as wrong:
        print(f"assay: {wrong}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="assay", description="Conformance of inference engines. The checks themselves run with pytest.")
    commands = parser.add_subparsers(required=True, metavar="engines | claims | faults")
    for name, show, what in (
        ("engines", _engines, "the engines that can be judged, and what each offers"),
        ("claims", _claims, "what is demanded of them"),
        ("faults", _faults, "what is planted to prove the checks"),
    ):
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("--json", action="store_true", help="the same as JSON")
        command.set_defaults(show=show)
        if name == "engines":
            command.add_argument("--adapter", action="append", default=[], metavar="module:attr", help="an engine of your own; repeatable")
    return parser


def _engines(args: argparse.Namespace) -> None:
    registry = Registry([*builtin_specs(), *entry_point_specs(), *(adapter_spec(a) for a in args.adapter)])
    tables.show_engines(registry, args.json)


def _claims(args: argparse.Namespace) -> None:
    tables.show_claims(read_claims([SUITES]), args.json)


def _faults(args: argparse.Namespace) -> None:
    tables.show_faults(all_faults(), args.json)


if __name__ == "__main__":
    sys.exit(main())
