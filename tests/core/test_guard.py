"""The guard: what an engine raises becomes a finding with its place, and what never returns is interrupted."""

import itertools
import signal
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from harness.core import guard
from harness.core.guard import Guarded, call
from harness.core.verdict import ClaimBroken, DeadlineMissed, EngineRaised

SHORT = 0.1
"""Seconds of wall time: a deadline for what hangs."""
LONG = 20.0


@pytest.fixture(autouse=True)
def alarm():
    """Each test leaves the signal's handler and the timer as it found them."""

    def mine(*_):
        raise AssertionError("an alarm that nobody asked for")

    before = signal.signal(signal.SIGALRM, mine)
    yield mine
    assert signal.getsignal(signal.SIGALRM) is mine
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    signal.signal(signal.SIGALRM, before)


def raising(error):
    raise error


def line_of(function):
    return function.__code__.co_firstlineno + 1


def hang():
    time.sleep(LONG)


def hang_on_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=LONG)


def hang_on_an_event():
    threading.Event().wait(LONG)


def hang_on_a_thread():
    thread = threading.Thread(target=time.sleep, args=(0.5,), daemon=True)
    thread.start()
    thread.join()


def hang_in_a_loop():
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        pass


def hang_behind_except():
    try:
        hang()
    except Exception:  # noqa: BLE001
        return "swallowed"


def hang_in_retries():
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        try:
            hang()
        except Exception:  # noqa: BLE001, PERF203
            continue


def missed(function, *, deadline=SHORT):
    """The finding of a call that does not return in time, and how long that took to be known."""
    started = time.monotonic()
    with pytest.raises(DeadlineMissed) as caught:
        call("step", function, deadline=deadline)
    assert time.monotonic() - started < 5
    return caught.value


def test_a_call_that_returns():
    """Arguments go in, the result comes out."""
    assert call("step", lambda a, b: (a, b), 1, b=2, deadline=LONG) == (1, 2)


def test_what_an_engine_raises_is_a_finding():
    """With the exception, the call and the place; the exception is the cause."""
    error = RuntimeError("out of pages\nsecond line")
    with pytest.raises(EngineRaised) as caught:
        call("step", raising, error)

    finding = caught.value
    assert (finding.headline, finding.expected) == ("ENGINE RAISED", "")
    assert finding.got == f"RuntimeError: out of pages (from step(), at {__file__}:{line_of(raising)})"
    assert finding.__cause__ is error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError: "),
        (AssertionError("no"), "AssertionError: no"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=repr,
)
def test_any_exception_is_the_engines(error, said):
    """A bare assert of the engine's is no assertion of the test's; one that leaves the process does not."""
    with pytest.raises(EngineRaised) as caught:
        call("step", raising, error)

    assert caught.value.got.startswith(f"{said} (from step(), at ")


def test_ctrl_c_is_nobodys_finding():
    """It passes through."""
    with pytest.raises(KeyboardInterrupt):
        call("step", raising, KeyboardInterrupt())


def test_a_finding_passes_through():
    """What was found inside is not translated again."""
    found = ClaimBroken("WRONG ANSWER", got="1")
    with pytest.raises(ClaimBroken) as caught:
        call("step", raising, found)

    assert caught.value is found


@pytest.mark.parametrize(
    "function", [hang, hang_on_a_lock, hang_on_an_event, hang_on_a_thread, hang_in_a_loop, hang_behind_except, hang_in_retries]
)
def test_a_call_that_hangs(function):
    """Sleeps, waits and loops are interrupted, also behind a blanket except; the stacks show where."""
    finding = missed(function)

    assert (finding.headline, finding.got, finding.expected) == (
        "DEADLINE MISSED",
        "step() did not return within 0.1 s",
        "every engine call returns",
    )
    assert f"in {function.__name__}" in finding.stacks


def test_the_stacks_show_every_thread():
    """Also the one that the call waits for."""
    release = threading.Event()

    def holding_everything_up():
        release.wait(LONG)

    thread = threading.Thread(target=holding_everything_up)
    thread.start()
    try:
        finding = missed(thread.join)
    finally:
        release.set()
        thread.join()
    assert "in holding_everything_up" in finding.stacks


def test_an_engine_that_swallows_the_interrupt():
    """Even a bare except cannot hide it: the call returned, and too late."""

    def swallow():
        try:
            hang()
        except BaseException:  # noqa: BLE001
            return "as if nothing had happened"

    assert "in hang" in missed(swallow).stacks


def test_an_engine_that_swallows_the_interrupt_and_waits_again():
    """The interrupt comes again until the call is over; the stacks are those of the first."""

    def stubborn():
        for wait in (hang_on_an_event, hang, hang):
            with suppress(BaseException):
                wait()

    assert "in hang_on_an_event" in missed(stubborn).stacks


def test_an_engine_that_turns_the_interrupt_into_an_error():
    """It missed its deadline; that it raised as well is a consequence."""

    def translating():
        try:
            hang()
        except BaseException as interrupt:
            raise RuntimeError("lost a worker") from interrupt

    missed(translating)


def test_one_that_hung_does_not_spoil_the_next():
    """The next call has its whole time, and may raise or return."""
    missed(hang)

    assert call("step", lambda: 1, deadline=LONG) == 1
    with pytest.raises(EngineRaised):
        call("step", raising, ValueError())
    missed(hang)


@pytest.mark.parametrize("inner_deadline", [SHORT, LONG])
def test_a_call_inside_a_call_is_the_outer_ones(inner_deadline):
    """The outermost deadline counts, and the finding names the outermost call."""

    def outer():
        call("inner", hang, deadline=inner_deadline)

    assert missed(outer).got == "step() did not return within 0.1 s"


def test_an_inner_call_leaves_the_outer_timer_alone():
    """After an inner call has returned or raised, the outer one can still be interrupted."""

    def outer():
        call("inner", lambda: 1, deadline=LONG)
        with pytest.raises(EngineRaised, match=r"from inner\(\)"):
            call("inner", raising, ValueError())
        hang()

    missed(outer)


def test_the_handler_stands_while_the_call_runs(alarm):
    """And whoever had the signal has it again, also after an exception (the fixture looks)."""
    assert call("step", signal.getsignal, signal.SIGALRM, deadline=LONG) is not alarm
    with pytest.raises(EngineRaised):
        call("step", raising, ValueError())
    assert signal.getsignal(signal.SIGALRM) is alarm


def test_a_call_of_another_thread():
    """Signals are the main thread's: the call is translated there and not timed."""
    found = []

    def body():
        found.append(call("step", lambda: signal.getitimer(signal.ITIMER_REAL), deadline=LONG))
        try:
            call("step", raising, ValueError("there"), deadline=SHORT)
        except EngineRaised as finding:
            found.append(finding.got.partition(" (")[0])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(LONG)
    assert found == [(0.0, 0.0), "ValueError: there"]


class Engine:
    """What the proxies of these tests stand for."""

    slots = 4

    def __init__(self):
        self.deployed = 0

    def step(self, x, *, twice=False):
        """One step."""
        return x * 2 if twice else x

    def deploy(self):
        self.deployed += 1
        return Engine()

    def fail(self):
        raise ValueError("no")

    def hang(self):
        hang()

    @property
    def broken(self):
        raise ValueError("no attribute")

    @property
    def count(self):
        return self.deployed


def test_a_guarded_engine_behaves_like_the_engine():
    """Attributes are read through at every look, methods are called with what they were given."""
    guarded = Guarded(Engine(), LONG)

    assert (guarded.slots, guarded.count, guarded.step(1), guarded.step(1, twice=True)) == (4, 0, 1, 2)
    guarded.deploy()
    assert guarded.count == 1
    assert guarded.step.__doc__ == "One step."


def test_a_guarded_call_is_guarded():
    """Exceptions and deadlines, of methods and of attributes."""
    guarded = Guarded(Engine(), SHORT)

    with pytest.raises(EngineRaised, match=r"ValueError: no \(from fail\(\), at "):
        guarded.fail()
    with pytest.raises(EngineRaised, match=r"ValueError: no attribute \(from broken\(\)"):
        _ = guarded.broken
    for _ in range(2):
        with pytest.raises(DeadlineMissed, match=r"hang\(\) did not return within 0.1 s"):
            guarded.hang()


def test_an_attribute_that_is_not_there():
    """An engine without a method that its protocol demands broke the claim."""
    with pytest.raises(EngineRaised, match="has no attribute 'nothing'"):
        _ = Guarded(Engine(), LONG).nothing


def test_what_an_engine_deploys_is_guarded_too():
    """The methods named, and no others, return proxies; `unguarded` is the object itself."""
    engine = Engine()
    guarded, bare = Guarded(engine, LONG, ("deploy",)), Guarded(engine, LONG)

    assert isinstance(guarded.deploy(), Guarded)
    assert isinstance(bare.deploy(), Engine)
    assert guarded.unguarded is engine
    with pytest.raises(EngineRaised):
        guarded.deploy().fail()


def test_engine_time_adds_up(monkeypatch):
    """Outermost calls of the main thread, also those that raise; what the harness does between them is not in it."""
    ticks = itertools.count()
    monkeypatch.setattr(guard, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    before = (guard.ENGINE_TIME.calls, guard.ENGINE_TIME.seconds)

    call("step", lambda: call("inner", next, ticks), deadline=LONG)
    next(ticks)
    with pytest.raises(EngineRaised):
        call("step", raising, ValueError())

    assert guard.ENGINE_TIME.calls - before[0] == 2
    assert guard.ENGINE_TIME.seconds - before[1] == pytest.approx(2 + 1)
