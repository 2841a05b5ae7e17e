"""A sender endpoint belongs to the call that names it."""

from fixtures.transfer import MakeBoundary
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Endpoint
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

OWN, ELSEWHERE, OTHER = Endpoint("9.8.7.6", 40400), Endpoint("1.2.3.4", 50051), Endpoint("5.6.7.8", 50052)


@claim("transfer.endpoint.own_untouched", source="seed checks 2, endpoint")
def test_own_untouched(boundary: MakeBoundary, judge: Judge) -> None:
    """Receiving with an endpoint of the call's own never changes the manager's."""
    for own in (None, OWN):
        stage = boundary(own_endpoint=own)
        judge.equal(stage.receiver.endpoint, own, "the manager's endpoint as deployed")
        options = dict(stage.receiver.connector_options)
        stage.send("request")

        stage.check(stage.receive("request", ELSEWHERE), "request")

        judge.equal(stage.witness.calls("get")[-1].handle, ELSEWHERE, "endpoint that was asked")
        judge.equal(stage.receiver.endpoint, own, "the manager's endpoint")
        judge.equal(dict(stage.receiver.connector_options), options, "the manager's connector options")


@claim("transfer.endpoint.per_request", source="vllm-omni#2000 (review), #5138: a request pulls from the previous one's sender")
def test_per_request(boundary: MakeBoundary, judge: Judge) -> None:
    """Each request is fetched from the endpoint that it names, and from the manager's own if it names none."""
    stage = boundary(own_endpoint=OWN)

    for request, endpoint, expected in (("first", ELSEWHERE, ELSEWHERE), ("second", OTHER, OTHER), ("third", None, OWN)):
        stage.send(request)
        stage.check(stage.receive(request, endpoint), request)
        asked = {call.handle for call in stage.witness.calls("get", key_contains=request)}
        judge.equal(asked, {expected}, f"endpoints asked for the {request} request")


@claim(
    "transfer.endpoint.prefetch_named",
    source="vllm-omni#2000: under several replicas a background fetch must ask the sender that it was given",
)
def test_prefetch_named(boundary: MakeBoundary, judge: Judge) -> None:
    """A prefetch asks the endpoint that its start names, not the manager's own."""
    stage = boundary(own_endpoint=OWN)

    for request, endpoint in (("first", ELSEWHERE), ("second", OTHER)):
        stage.send(request)
        stage.start(request, endpoint)
        stage.check(stage.receiver.consume(request), request)
        asked = {call.handle for call in stage.witness.calls("get", key_contains=request)}
        judge.equal(asked, {endpoint}, f"endpoints asked for the {request} request")


@claim("transfer.endpoint.done_named", source="vllm-omni#2000: under several replicas, the sender that holds a payload is to be told")
def test_done_named(boundary: MakeBoundary, judge: Judge) -> None:
    """Whoever is told that a payload was received, or will not be, is the sender that the request named, not the manager's own."""
    stage = boundary(own_endpoint=OWN)
    for path in ("prefetched", "received"):
        stage.send(path)
        if path == "received":
            delivery = stage.receive(path, ELSEWHERE)
        else:
            stage.start(path, ELSEWHERE)
            delivery = stage.receiver.consume(path)
        stage.check(delivery, path)
        told = {call.handle for op in ("done", "discard") for call in stage.witness.calls(op, key_contains=path)}
        judge.equal(told, {ELSEWHERE}, f"endpoints told that the payload was {path}")
