"""Command-line options: read, checked against the registry, and turned into a `Run`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.core import determinism, leases
from harness.core.claims import ClaimError, read_claims
from harness.core.constants import workloads
from harness.core.faults import KINDS, Fault, find_fault, find_faults
from harness.core.guard import DEFAULT_DEADLINE
from harness.core.names import unknown
from harness.core.registry import Registry, Selection, adapter_spec, builtin_specs, entry_point_specs
from harness.core.spec import RegistryError
from harness.pytest_plugin.state import RUN, Run

DEFAULT_SEED = 1234


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "Assay: conformance of inference engines")
    group.addoption("--engine", action="append", default=[], metavar="NAME[:option=value,...]", help="engines to judge; repeatable, globs")
    group.addoption("--adapter", action="append", default=[], metavar="module:attr", help="an engine of your own; repeatable")
    group.addoption("--seed", type=int, default=DEFAULT_SEED, help="the run's one seed (default: %(default)s)")
    group.addoption(
        "--deadline", type=float, default=DEFAULT_DEADLINE, metavar="SECONDS", help="for one engine call (default: %(default)s)"
    )
    group.addoption(
        "--lease-deadline",
        type=float,
        default=leases.DEADLINE,
        metavar="SECONDS",
        help="for cards that other processes hold (default: %(default)s)",
    )
    group.addoption(
        "--set", action="append", default=[], metavar="kind.name=value", dest="assay_set", help="a constant of a kind's workload"
    )
    group.addoption("--schedule", metavar="TEXT", help="play this schedule in place of every drawn one, as a replay does")
    group.addoption("--fault", metavar="NAME", help="run the suites against a reference engine with this fault planted")
    group.addoption(
        "--prove", nargs="?", const="*", metavar="GLOB", help="plant every fault (that matches) and demand that its claims fail"
    )
    group.addoption(
        "--strict-known", action="store_true", help="fail the run for a known failure of its engines that is to be looked at again"
    )
    group.addoption("--plan", action="store_true", help="say what would run here and what would not, and run nothing")
    group.addoption("--list-engines", action="store_true", help="list the engines and leave")
    group.addoption("--list-claims", action="store_true", help="list the claims and leave")
    parser.addini("assay_known_failures", "file of known failures, relative to the root", default="ci/known_failures.toml")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if config.option.list_engines or config.option.list_claims:
        from harness import tables

        if config.option.list_engines:
            tables.show_engines(_run_of(config).registry)
        if config.option.list_claims:
            tables.show_claims(_claims(config))
        return 0
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    run = _run_of(config)
    _check_marks(config)
    if config.option.list_engines or config.option.list_claims:
        return
    determinism.set_environment(determinism.Policy())
    run.survey()


def pytest_report_header(config: pytest.Config) -> list[str]:
    run = config.stash[RUN]
    here = [
        f"{s.label} {s.spec.version or ''}".strip()
        for s in run.selections
        if any(not c.unavailable for c in run.cases(s.spec.kind) if c.selection is s)
    ]
    lines = [f"assay: seed {run.seed}; engines: {', '.join(here) or 'none'}"]
    return lines + [f"unavailable: {label}: {reason}" for label, reason in run.unavailable.items()]


def _run_of(config: pytest.Config) -> Run:
    """The resolved run; made on first use. Raises pytest.UsageError for anything that does not exist."""
    if RUN not in config.stash:
        try:
            config.stash[RUN] = _resolve(config)
        except (RegistryError, ClaimError, ValueError) as wrong:
            raise pytest.UsageError(str(wrong)) from None
    return config.stash[RUN]


def _resolve(config: pytest.Config) -> Run:
    option = config.option
    brought = [adapter_spec(adapter) for adapter in option.adapter]
    registry = Registry([*builtin_specs(), *entry_point_specs(), *brought])
    if not 0 < option.deadline < float("inf"):
        raise ValueError(f"--deadline {option.deadline}: give seconds above 0")
    if not 0 < option.lease_deadline < float("inf"):
        raise ValueError(f"--lease-deadline {option.lease_deadline}: give seconds above 0")
    if not 0 <= option.seed < 2**63:
        raise ValueError(f"--seed {option.seed}: give a number from 0 to {2**63 - 1}")
    if option.prove and (config.invocation_params.dir / option.prove).exists():
        raise ValueError(f"--prove {option.prove} takes a glob of faults; put the path before it, as in: pytest {option.prove} --prove")
    if option.prove and option.fault:
        raise ValueError("--prove plants every fault, --fault one: give one of them")
    prove = find_faults(option.prove) if option.prove else None
    fault = find_fault(option.fault) if option.fault else None
    selections = registry.select(option.engine)
    if prove is not None or fault is not None:
        selections = _references(selections, prove or [fault], option.engine)  # type: ignore[list-item]
    return Run(
        registry=registry,
        selections=selections,
        explicit=frozenset(e.partition(":")[0] for e in option.engine if not re.search(r"[*?\[]", e.partition(":")[0])),
        seed=option.seed,
        deadline=option.deadline,
        prove=prove,
        fault=fault,
        adapters={spec.name: adapter for spec, adapter in zip(brought, option.adapter, strict=True)},
        replay_options=_replay_options(config),
        workloads=workloads(option.assay_set),
        schedule=_readable(option.schedule),
    )


def _references(selections: list[Selection], faults: list[Fault], asked: list[str]) -> list[Selection]:
    """The reference engines that faults are planted in; naming any other engine beside a fault is an error."""
    references = [s for s in selections if s.spec.reference]
    others = [s.label for s in selections if not s.spec.reference]
    if asked and others:
        raise ValueError(f"--engine {others[0]}: faults are planted in reference engines only; leave --engine out")
    kinds = {f.kind for f in faults} | {claim.partition(".")[0] for f in faults for claim in f.claims}
    return [s for s in references if s.spec.kind in kinds]


def _replay_options(config: pytest.Config) -> list[str]:
    """The options that a replay needs beside the test's name, its adapter, the seed and the fault."""
    option = config.option
    pairs = [("--set", s) for s in option.assay_set]
    pairs += [("--engine", e) for e in option.engine if ":" in e]
    if option.deadline != DEFAULT_DEADLINE:
        pairs.append(("--deadline", f"{option.deadline:g}"))
    return [word for pair in pairs for word in pair]


def _readable(schedule: str | None) -> str | None:
    """The text of --schedule, once it is known to be one of some kind's."""
    refusals = {kind: _refusal(kind, schedule) for kind in KINDS} if schedule is not None else {}
    if refusals and all(refusals.values()):
        raise ValueError("; ".join(f"--schedule: {wrong} ({kind})" for kind, wrong in refusals.items()))
    return schedule


def _refusal(kind: str, schedule: str) -> str | None:
    """Why the text is no schedule of this kind, or None."""
    try:
        importlib.import_module(f"harness.{kind}.schedule").Schedule.parse(schedule)
    except ValueError as wrong:
        return str(wrong)
    return None


def _check_marks(config: pytest.Config) -> None:
    """An unknown name in -m selects nothing, silently; make it an error."""
    from markers import MARKS

    expression = re.sub(r"\([^()]*=[^()]*\)", "", config.option.markexpr or "")
    known = {*MARKS, *(line.partition(":")[0].partition("(")[0].strip() for line in config.getini("markers"))}
    for name in re.findall(r"[A-Za-z_]\w*", expression):
        if name not in known | {"and", "or", "not", "True", "False"}:
            raise pytest.UsageError(f"-m {config.option.markexpr!r}: {unknown('mark', name, known)}")


def _claims(config: pytest.Config) -> list:
    paths: Iterable[Path] = [config.invocation_params.dir / a.partition("::")[0] for a in config.args]
    try:
        return read_claims(paths)
    except (ClaimError, OSError) as wrong:
        raise pytest.UsageError(str(wrong)) from None
