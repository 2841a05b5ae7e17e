"""Prefetch is opt-in: on only where a stage's configuration asks for it, and never where it would take another stage's payload."""

from copy import deepcopy

from fixtures.transfer import MakeBoundary
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import EntryPoint, Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.optin.default_off", source="seed checks 2, opt-in")
def test_default_off(boundary: MakeBoundary, judge: Judge) -> None:
    """A configuration that does not mention prefetch leaves it off."""
    silent, asking = boundary(async_prefetch="absent"), boundary(async_prefetch=True)

    judge.equal(silent.receiver.prefetch_enabled, False, "prefetch_enabled without the flag")
    judge.equal(asking.receiver.prefetch_enabled, True, "prefetch_enabled with the flag")


@claim("transfer.optin.follows_flag", source="seed checks 2, opt-in")
def test_follows_flag(boundary: MakeBoundary, judge: Judge) -> None:
    """Prefetch is on where the flag is true, off where it is None or False."""
    for flag, expected in ((True, True), (None, False), (False, False)):
        judge.equal(boundary(async_prefetch=flag).receiver.prefetch_enabled, expected, f"prefetch_enabled for the flag {flag}")


@claim("transfer.optin.survives_connector_config", source="seed checks 2, opt-in")
def test_survives_connector_config(boundary: MakeBoundary, judge: Judge) -> None:
    """The flag and the connector's own options survive being merged, whatever the options are."""
    options = {
        "note": "kept",
        "number": 7,
        "zero": 0,
        "empty": "",
        "off": False,
        "none": None,
        "nested": {"list": [1, 2]},
        "sender_host": "h",
    }

    for flag in (True, False):
        given = deepcopy(options)
        receiver = boundary(async_prefetch=flag, connector_options=given).receiver
        judge.equal(receiver.prefetch_enabled, flag, f"prefetch_enabled for the flag {flag} beside connector options")
        judge.equal({k: receiver.connector_options.get(k) for k in options}, options, "the connector's options")
        judge.equal(given, options, "the options as the user wrote them")


@claim("transfer.optin.off_with_companion", source="seed checks 2, opt-in")
def test_off_with_companion(boundary: MakeBoundary, judge: Judge) -> None:
    """A stage that collects CFG companion payloads too does not prefetch, whatever the flag says."""
    alone, accompanied = boundary(async_prefetch=True), boundary(async_prefetch=True, companion=True)

    judge.equal(accompanied.receiver.prefetch_enabled, False, "prefetch_enabled with a companion collector")
    judge.equal(alone.receiver.prefetch_enabled, True, "prefetch_enabled without one")


@claim("transfer.optin.off_autoregressive", source="seed checks 2, opt-in")
def test_off_autoregressive(boundary: MakeBoundary, judge: Judge) -> None:
    """A manager made from the autoregressive entry point never prefetches."""
    diffusion, autoregressive = boundary(), boundary(entry=EntryPoint.AUTOREGRESSIVE)

    judge.equal(autoregressive.receiver.prefetch_enabled, False, "prefetch_enabled from the autoregressive entry point")
    judge.equal(diffusion.receiver.prefetch_enabled, True, "prefetch_enabled from the diffusion entry point")


@claim("transfer.optin.start_while_off", source="seed checks 2, opt-in")
def test_start_while_off(boundary: MakeBoundary, judge: Judge) -> None:
    """Starting a prefetch while prefetch is off does nothing."""
    for flag, tracked in ((False, 0), (True, 1)):
        stage = boundary(async_prefetch=flag)
        stage.send("request")
        stage.start("request")
        judge.equal(stage.futures(), tracked, f"prefetches tracked with the flag {flag}")
        outcome = stage.receiver.consume("request").outcome
        judge.equal(outcome, Outcome.HIT if flag else Outcome.MISS, f"outcome with the flag {flag}")
        judge.equal(stage.fetched("request") > 0, flag, f"whether the connector was asked with the flag {flag}")
        stage.settle()


@claim("transfer.optin.sender_never_fetches", source="vllm-omni: a stage says whether it receives (need_recv_cache); seed checks 2")
def test_sender_never_fetches(boundary: MakeBoundary, judge: Judge) -> None:
    """A stage that is not configured to receive submits no prefetch, though prefetch is asked for."""
    for receives in (False, True):
        stage = boundary(receives=receives)
        stage.send("request")
        stage.start("request")
        outcome = stage.receiver.consume("request").outcome
        judge.equal(outcome, Outcome.HIT if receives else Outcome.MISS, f"outcome with receives = {receives}")
        judge.equal(stage.fetched("request") > 0, receives, f"whether the connector was asked with receives = {receives}")
        stage.settle()
