"""The guidance branches (CFG) of one request, each with a payload of its own."""

from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.clock import Clock
from harness.core.judge import Judge
from harness.transfer.protocol import Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

BRANCHES = {"main": "request", "cfg_text": "request__cfg_text", "cfg_img": "request__cfg_img"}


@claim("transfer.branches.all", source="spec: several CFG payloads; vllm-omni: companion payloads under request ids of their own")
@requires(Transfer.CFG_BRANCHES)
def test_all(boundary: MakeBoundary, judge: Judge) -> None:
    """Every branch is given its own payload, of its own length, and nothing is left."""
    stage = boundary()
    send_branches(stage, BRANCHES)

    given = stage.receiver.receive_branches(BRANCHES, stage.workload.endpoint, stage.workload.receive_timeout)

    judge.equal(sorted(given), sorted(BRANCHES), "branches given")
    for branch, request in BRANCHES.items():
        stage.check(given[branch], request)
    judge.equal(stage.witness.usage()["segments"], 0, "payloads that the connector still holds")


@claim("transfer.branches.one_missing", source="vllm-omni#5627: a branch that does not come; the others are there")
@requires(Transfer.CFG_BRANCHES)
def test_one_missing(boundary: MakeBoundary, judge: Judge) -> None:
    """A branch whose payload does not come is a miss, and costs no other branch its payload, whichever it is."""
    for missing in ("cfg_text", "cfg_img"):
        stage = boundary()
        send_branches(stage, {branch: request for branch, request in BRANCHES.items() if branch != missing})

        given = stage.receiver.receive_branches(BRANCHES, stage.workload.endpoint, stage.workload.receive_timeout)

        judge.taken(stage.fetched(BRANCHES[missing]), "the connector was asked for the missing branch")
        for branch, request in BRANCHES.items():
            if branch == missing:
                stage.check_nothing(given[branch], Outcome.MISS, request)
            else:
                stage.check(given[branch], request)


@claim("transfer.branches.share_timeout", source="protocol: each branch ends for itself; all of them share the one timeout")
@requires(Transfer.CFG_BRANCHES)
def test_share_timeout(boundary: MakeBoundary, judge: Judge, clock: Clock) -> None:
    """Branches that do not come are waited for together: two of them cost less than two timeouts."""
    stage = boundary()
    send_branches(stage, {"main": BRANCHES["main"]})
    began = clock.now()
    given = stage.receiver.receive_branches(BRANCHES, stage.workload.endpoint, stage.workload.receive_timeout)
    waited = clock.now() - began

    for branch in ("cfg_text", "cfg_img"):
        stage.check_nothing(given[branch], Outcome.MISS, BRANCHES[branch])
    bound = 2 * stage.workload.receive_timeout
    judge.demand(
        waited < bound, got=f"two missing branches cost {waited:.3f} s", expected=f"less than the {bound} s of one after the other"
    )


def send_branches(stage: Boundary, branches: dict[str, str]) -> None:
    """Payloads of different lengths, so that none can stand for another."""
    for shorter, request in enumerate(branches.values()):
        stage.send(request, seq_len=stage.workload.seq_len - shorter)
