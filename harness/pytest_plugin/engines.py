"""Engines during a run: booted once and shared, one at a time, closed whatever happens; and the fixtures that hand them out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

import pytest

from harness.core import determinism, guard
from harness.core.blueprint import Blueprint
from harness.core.clock import Clock, SystemClock, VirtualClock
from harness.core.judge import Judge
from harness.core.verdict import ClaimBroken, Finding, Leak, Unavailable, Verdict
from harness.pytest_plugin.routing import refusal
from harness.pytest_plugin.state import CASE, REASON, RUN, VERDICT, Case, Run

_DEPLOYS = ("deploy", "connector")
"""Methods of an engine whose results are engines in their own right, guarded like it."""

_BOOTS = {"duplex": "open"}
"""Kind to the call that boots a shared engine, so that what a test leaves is counted from there."""


class Pool:
    """The one engine that is booted, and the fault that is planted under it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._case: Case | None = None
        self._engine: guard.Guarded | None = None
        self._planted = ExitStack()
        self._fault: str | None = None
        self._refused: dict[str, str] = {}
        self.spoiled = False
        """A test failed on the shared engine: whatever it is now, the next test gets a new one."""
        self.clock: Clock = SystemClock()
        """The clock of the engine that was built last."""

    def shared(self, case: Case) -> guard.Guarded:
        """The engine of the case, booted if it is not the one that is up."""
        if self._engine is None or self._case is None or self._case.id != case.id:
            self.close()
            self._engine, self._case = self.build(case, {}), case
            boot = _BOOTS.get(case.selection.spec.kind)
            if boot is not None:
                getattr(self._engine, boot)()
        return self._engine

    def build(self, case: Case, options: dict[str, str]) -> guard.Guarded:
        """A new engine that the caller closes. Raises a finding if the build fails, Unavailable if it cannot be had here."""
        if case.label in self._refused:
            raise Unavailable(self._refused[case.label])
        self._plant(case)
        determinism.apply(determinism.Policy(), self._run.seed)
        config = case.selection.config(case.profile, self._run.seed)
        for name, value in options.items():
            if name not in config.options:
                raise KeyError(f"{case.selection.spec.name} has no option {name!r}")
            config = type(config)(config.profile, config.device, {**config.options, name: value}, config.seed)
        self.clock = VirtualClock() if case.selection.spec.reference else SystemClock()
        self._run.boots[case.label] += 1
        before = guard.ENGINE_TIME.seconds
        try:
            engine = _build(case, config, self.clock, self._run.deadline)
        except Unavailable as reason:
            # What cannot be had once is not tried again for every test; another option may be had.
            if not options:
                self._refused[case.label] = str(reason)
            raise
        finally:
            # By the stopwatch of the calls, which a build is one of, so that the two can be told apart exactly.
            self._run.spent["build"] += guard.ENGINE_TIME.seconds - before
        return guard.Guarded(engine, self._run.deadline, _DEPLOYS)

    def is_fit(self, engine: guard.Guarded) -> bool:
        """Whether this engine is the shared one, and the next test may get it."""
        return self._engine is engine and not self.spoiled

    def close(self) -> None:
        """Close the shared engine and take the fault out again."""
        self.spoiled = False
        engine, self._engine = self._engine, None
        case, self._case = self._case, None
        if case is not None:
            self._run.traces.pop(case.label, None)
        try:
            if engine is not None:
                engine.close()
        finally:
            self._fault = None
            self._planted.close()

    def _plant(self, case: Case) -> None:
        wanted = case.fault.name if case.fault else None
        if wanted != self._fault:
            self._planted.close()
            if case.fault:
                self._planted.enter_context(case.fault.planted())
            self._fault = wanted


def _build(case: Case, config: Any, clock: Any, deadline: float) -> Any:
    """Unavailable must not be taken for a failure of the engine, so it is carried around the guard."""
    adapter = case.selection.spec.load()

    def build() -> Any:
        try:
            return adapter.build(config, clock)
        except Unavailable as reason:
            return reason

    built = guard.call("build", build, deadline=max(deadline, guard.BUILD_DEADLINE))
    if isinstance(built, Unavailable):
        raise built
    if built is None:
        raise ClaimBroken("NO ENGINE", got="build() returned None", expected="the engine that it built")
    return built


POOL = pytest.StashKey[Pool]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[POOL] = Pool(config.stash[RUN])
    if threading.current_thread() is threading.main_thread():
        # How CI systems cancel a job: as Ctrl-C, so that engines are closed and free what they hold.
        before = signal.signal(signal.SIGTERM, _interrupt)
        config.add_cleanup(lambda: signal.signal(signal.SIGTERM, before))


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt("SIGTERM")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After a failure, and after the last test of a boot, the engine is closed, once the fixtures have let go of it.

    One that cannot be closed is the failure of that test, not of whoever comes next.
    """
    try:
        return (yield)
    finally:
        case, following = item.stash.get(CASE, None), nextitem.stash.get(CASE, None) if nextitem else None
        pool = item.config.stash[POOL]
        if case is not None and (pool.spoiled or following is None or following.id != case.id):
            pool.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After Ctrl-C, too: pytest has torn the fixtures down, and the shared engine goes last."""
    if POOL not in session.config.stash:
        return
    try:
        session.config.stash[POOL].close()
    except Finding as broken:
        # No test is left to bear it, and the records of those that ran must still be written.
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"{broken.headline}: {broken.got}", red=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    case = item.stash.get(CASE, None)
    if case is None:
        return
    if case.unavailable:
        skip(item, Verdict.UNAVAILABLE, case.unavailable)
    why = refusal(item, case)
    if why:
        skip(item, Verdict.UNSUPPORTED, why)


def skip(item: pytest.Item, verdict: Verdict, reason: str) -> None:
    """End the item with a verdict that is a skip."""
    item.stash[VERDICT], item.stash[REASON] = verdict, reason
    pytest.skip(f"{verdict}: {reason}")


def _boot(request: pytest.FixtureRequest, boot: Callable[[], guard.Guarded]) -> guard.Guarded:
    try:
        return boot()
    except Unavailable as reason:
        skip(request.node, Verdict.UNAVAILABLE, str(reason))
        raise AssertionError("skip returned") from None


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[guard.Guarded]:
    """The engine under test, shared with the tests of the same case. What it held before the test, it must hold after it."""
    pool = request.config.stash[POOL]
    up = _boot(request, lambda: pool.shared(request.param))
    before = dict(up.usage())
    yield up
    # After a failure, or a test that builds its own, nothing is left that the next test could inherit.
    if pool.is_fit(up):
        try:
            check_usage("engine", before, dict(up.usage()))
        except Finding:
            pool.spoiled = True
            raise


@pytest.fixture
def fresh_engine(request: pytest.FixtureRequest, build_engine: Callable[..., guard.Guarded]) -> guard.Guarded:
    """An engine that no test has touched; the shared one is closed first."""
    return build_engine()


@pytest.fixture
def build_engine(request: pytest.FixtureRequest) -> Iterator[Callable[..., guard.Guarded]]:
    """A function that boots an engine of the case with the options given: `build_engine(connector="memory")`.

    For tests with arms of their own or restarts. The shared engine is closed first; each engine built is closed at the end, the last
    first. Close one before you build the next where the two do not fit beside each other.
    """
    pool = request.config.stash[POOL]
    case = request.node.stash[CASE]
    pool.close()
    with ExitStack() as built:

        def build(**options: str) -> guard.Guarded:
            up = _boot(request, lambda: pool.build(case, options))
            built.callback(up.close)
            return up

        yield build
    pool.close()


@pytest.fixture
def blueprint(request: pytest.FixtureRequest) -> Blueprint:
    """The engine of the case as another process builds it, the planted fault included. Nothing is booted in this process."""
    run, case = request.config.stash[RUN], request.param
    spec = case.selection.spec
    fault = case.fault.name if case.fault else None
    return Blueprint(spec.name, case.selection.config(case.profile, run.seed), run.adapters.get(spec.name), fault)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Compares, counts what was compared, and finds."""
    run = request.config.stash[RUN]
    case = request.node.stash[CASE]
    return Judge(seed=run.seed, traces=run.traces.setdefault(case.label, {}))


@pytest.fixture
def clock(request: pytest.FixtureRequest, engine: guard.Guarded) -> Clock:
    """The engine's clock: virtual for a reference engine, wall time for any other."""
    return request.config.stash[POOL].clock


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's one seed."""
    return request.config.stash[RUN].seed


Watch = Callable[[str, Any], Any]
WATCHED = pytest.StashKey[list[tuple[str, Any, dict[str, int]]]]()


@pytest.fixture
def watch(request: pytest.FixtureRequest) -> Watch:
    """`watch(label, thing)`: what `thing.usage()` says now it must say again when the test body ends. Returns the thing."""
    watched = request.node.stash.setdefault(WATCHED, [])

    def start(label: str, thing: Any) -> Any:
        watched.append((label, thing, dict(thing.usage())))
        return thing

    return start


def check_usage(label: str, before: dict[str, int], after: dict[str, int]) -> None:
    """Raise Leak, and say which counter is off, unless both are equal."""
    __tracebackhide__ = True
    off = [k for k in sorted({*before, *after}) if before.get(k) != after.get(k)]
    if off:
        got = ", ".join(f"{k} {after.get(k)}" for k in off)
        want = ", ".join(f"{k} {before.get(k)}" for k in off)
        raise Leak("LEAK", got=f"{label} holds {got} after the test", expected=f"{want}, as before it")
