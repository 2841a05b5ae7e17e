"""The `assay` command: `assay engines | claims | faults [--json]`, `assay bench transfer`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

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
    commands = parser.add_subparsers(required=True, metavar="engines | claims | faults | bench")
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
    _add_bench(commands)
    return parser


def _add_bench(commands: Any) -> None:
    what = "how fast engines are, beside a plain copy of the same bytes in the same run"
    command = commands.add_parser("bench", help=what, description=what)
    command.add_argument("kind", choices=["transfer"], help="which kind of engine")
    command.add_argument("--engine", action="append", default=[], metavar="NAME", help="as pytest's --engine; repeatable")
    command.add_argument("--sizes", default="1,2,4,8,16,32,64,128,256,512", metavar="MIB,...", help="payload sizes in MiB (%(default)s)")
    command.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where prefetched payloads go (%(default)s)")
    command.add_argument("--out", type=Path, metavar="FILE", help="write the record there too, as JSON")
    command.set_defaults(show=_bench)


def _bench(args: argparse.Namespace) -> None:
    from harness.transfer import bench_run

    sizes = [int(size) for size in args.sizes.split(",") if size.isdigit() and int(size) > 0]
    if len(sizes) != len(args.sizes.split(",")):
        raise RegistryError(f"--sizes {args.sizes}: give MiB, such as 1,16,256")
    report = bench_run.run(Registry([*builtin_specs(), *entry_point_specs()]), args.engine, [size << 20 for size in sizes], args.device)
    bench_run.show(report)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report.record(), indent=1) + "\n")


def _engines(args: argparse.Namespace) -> None:
    registry = Registry([*builtin_specs(), *entry_point_specs(), *(adapter_spec(a) for a in args.adapter)])
    tables.show_engines(registry, args.json)


def _claims(args: argparse.Namespace) -> None:
    tables.show_claims(read_claims([SUITES]), args.json)


def _faults(args: argparse.Namespace) -> None:
    tables.show_faults(all_faults(), args.json)


if __name__ == "__main__":
    sys.exit(main())
