"""A sender endpoint belongs to the call that names it."""

from fixtures.transfer import MakeBoundary
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Endpoint
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

ELSEWHERE = Endpoint("1.2.3.4", 50051)


@claim("transfer.endpoint.own_untouched", source="seed checks 2, endpoint")
def test_own_untouched(boundary: MakeBoundary, judge: Judge) -> None:
    """Receiving with an endpoint of the call's own never changes the manager's."""
    stage = boundary()
    own, options = stage.receiver.endpoint, dict(stage.receiver.connector_options)
    stage.send("request")

    stage.check(judge, stage.receive("request", ELSEWHERE), "request")

    judge.equal(stage.witness.calls("get")[-1].handle, ELSEWHERE, "endpoint that was asked")
    judge.equal(stage.receiver.endpoint, own, "the manager's endpoint")
    judge.equal(dict(stage.receiver.connector_options), options, "the manager's connector options")


@claim("transfer.endpoint.per_request", source="vllm-omni#2000 (review), #5138: a request pulls from the previous one's sender")
def test_per_request(boundary: MakeBoundary, judge: Judge) -> None:
    """Each request is fetched from the endpoint that it names, and from the manager's own if it names none."""
    stage = boundary()
    own, other = stage.receiver.endpoint, Endpoint("5.6.7.8", 50052)

    for request, endpoint, expected in (("first", ELSEWHERE, ELSEWHERE), ("second", other, other), ("third", None, own)):
        stage.send(request)
        stage.check(judge, stage.receive(request, endpoint), request)
        asked = {call.handle for call in stage.witness.calls("get", key_contains=request)}
        judge.equal(asked, {expected}, f"endpoints asked for the {request} request")
