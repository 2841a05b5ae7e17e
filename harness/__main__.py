"""The `assay` command: `assay engines | claims | faults [--json]`, `assay bench KIND`, `assay report`, `assay serve`, `assay doctor`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from harness import tables
from harness.core import plots
from harness.core.claims import ClaimError, read_claims
from harness.core.faults import all_faults
from harness.core.registry import Registry, adapter_spec, builtin_specs, entry_point_specs
from harness.core.spec import RegistryError

SUITES = Path(__file__).parents[1] / "suites"


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words[:2] == ["report", "diff"]:
        from harness.report import command_diff

        return command_diff.main(words[2:])
    if words[:1] == ["report"]:
        from harness.report import command

        return command.main(words[1:])
    args = _parser().parse_args(words)
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
    commands = parser.add_subparsers(required=True, metavar="engines | claims | faults | bench | report | serve | doctor")
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
    _add_serve(commands)
    _add_doctor(commands)
    # Its words are read by harness.report, which also has `report diff`; here it is only listed.
    commands.add_parser("report", help="recorded runs as a static site; `report diff OLD NEW`: what changed", add_help=False)
    return parser


def _add_bench(commands: Any) -> None:
    what = "how fast engines are"
    kinds = commands.add_parser("bench", help=what, description=what).add_subparsers(required=True, metavar="transfer | duplex | tier")
    for kind, run, what in (
        ("transfer", _bench_transfer, "how fast bytes are carried, beside a plain copy of them in the same run"),
        ("duplex", _bench_duplex, "milliseconds of a tick by batch size, beside the first engine in the same run and the floor"),
        ("tier", _bench_tier, "first tokens cold and warm, copies between the tiers, hit ratio against working set over capacity"),
    ):
        command = kinds.add_parser(kind, help=what, description=what)
        command.add_argument("--engine", action="append", default=[], metavar="NAME", help="as pytest's --engine; repeatable")
        command.add_argument("--adapter", action="append", default=[], metavar="module:attr", help="an engine of your own; repeatable")
        command.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where it is measured (%(default)s)")
        command.add_argument("--json", "--out", type=Path, metavar="FILE", dest="out", help="write the record there too")
        command.set_defaults(show=run)
        if kind == "transfer":
            command.add_argument("--sizes", default="1,2,4,8,16,32,64,128,256,512", metavar="MIB,...", help="of payloads (%(default)s)")
            continue
        if kind == "duplex":
            command.add_argument("--batch", type=int, nargs="+", default=[2, 4, 8], metavar="B", help="batch sizes (2 4 8); 1 counts as 2")
        command.add_argument("--plot", type=Path, metavar="FILE", help="draw it there, with matplotlib: .png, .svg or .pdf")
        command.add_argument("--read", type=Path, metavar="FILE", help="show a record of --json again, and measure nothing")


def _add_serve(commands: Any) -> None:
    what = "puts a prefix-cache server behind OpenAI's completions API"
    command = commands.add_parser("serve", help=what, description=what)
    command.add_argument("--engine", default="tier/reference", metavar="NAME[:option=value,...]", help="one that is stepped (%(default)s)")
    command.add_argument("--adapter", action="append", default=[], metavar="module:attr", help="an engine of your own; repeatable")
    command.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where it runs (%(default)s)")
    command.add_argument("--host", default="127.0.0.1", help="where it listens (%(default)s)")
    command.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    command.add_argument("--api-key", metavar="KEY", help="asked for in every request")
    command.add_argument("--model", default="assay", metavar="NAME", help="what the model is called in requests (%(default)s)")
    command.add_argument("--seed", type=int, default=0, help="the run's one seed (%(default)s)")
    command.add_argument("--fault", action="append", default=[], metavar="NAME", help="planted in the engine or the server; repeatable")
    command.set_defaults(show=_serve)


def _add_doctor(commands: Any) -> None:
    what = "what this machine can be trusted with: what repeats itself bit for bit, and how fast bytes move"
    command = commands.add_parser("doctor", help=what, description=what)
    command.add_argument("--device", default="all", choices=["all", "cpu", "cuda"], help="which to examine (%(default)s)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the record there too")
    command.set_defaults(show=_doctor)


def _bench_transfer(args: argparse.Namespace) -> None:
    from harness.transfer import bench_run

    sizes = [int(size) for size in args.sizes.split(",") if size.isdigit() and int(size) > 0]
    if len(sizes) != len(args.sizes.split(",")):
        raise RegistryError(f"--sizes {args.sizes}: give MiB, such as 1,16,256")
    report = bench_run.run(_registry(args.adapter), args.engine, [size << 20 for size in sizes], args.device)
    bench_run.show(report)
    _write(args.out, report.record())


def _bench_duplex(args: argparse.Namespace) -> None:
    from harness.duplex import bench_plot, bench_run

    if args.plot:
        plots.check(args.plot)
    report = bench_run.read(args.read) if args.read else bench_run.run(_registry(args.adapter), args.engine, args.batch, args.device)
    bench_run.show(report)
    _write(args.out, report.record())
    if args.plot:
        bench_plot.draw(report, args.plot)


def _bench_tier(args: argparse.Namespace) -> None:
    from harness.tier import bench_plot, bench_run

    if args.plot:
        plots.check(args.plot)
    report = bench_run.read(args.read) if args.read else bench_run.run(_registry(args.adapter), args.engine, args.device)
    bench_run.show(report)
    _write(args.out, report.record())
    if args.plot:
        bench_plot.draw(report, args.plot)


def _serve(args: argparse.Namespace) -> None:
    from harness.tier.server import command

    selected = _registry(args.adapter).select([args.engine])
    if len(selected) != 1:
        raise RegistryError(f"--engine {args.engine}: name one engine")
    command.serve(selected[0], args)


def _doctor(args: argparse.Namespace) -> None:
    from harness import doctor

    found = doctor.run(args.device)
    doctor.show(found)
    _write(args.json, found.record())


def _registry(adapters: list[str]) -> Registry:
    return Registry([*builtin_specs(), *entry_point_specs(), *(adapter_spec(adapter) for adapter in adapters)])


def _write(path: Path | None, record: dict[str, Any]) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")


def _engines(args: argparse.Namespace) -> None:
    tables.show_engines(_registry(args.adapter), args.json)


def _claims(args: argparse.Namespace) -> None:
    tables.show_claims(read_claims([SUITES]), args.json)


def _faults(args: argparse.Namespace) -> None:
    tables.show_faults(all_faults(), args.json)


if __name__ == "__main__":
    sys.exit(main())
