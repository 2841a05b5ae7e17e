"""The bench of several cards, on devices that are the host: what it reports, and that it times nothing that is wrong."""

import pytest
import torch

from harness.core.faults import find_fault
from harness.core.registry import Registry, builtin_specs
from harness.transfer.bench_cards import at_once, card_to_card
from harness.transfer.bench_run import Report, show

HOST = torch.device("cpu")
SIZE = 4 << 20


@pytest.fixture(scope="module")
def reference():
    (selection,) = Registry(builtin_specs()).select(["transfer/reference"])
    return selection


def test_two_devices_at_once(reference, capsys):
    """Rates of whole payloads, and a row in the table."""
    row = at_once(reference, SIZE, [HOST, HOST], rounds=3)
    show(Report(cards=[row, card_to_card(reference, SIZE, HOST, HOST, rounds=3)]))

    assert (row.engine, row.way, row.size, row.rounds) == ("transfer/reference", "host to 2 devices", SIZE, 3)
    assert row.rate > 0
    assert row.plain > 0
    assert row.of_plain > 0
    assert "host to 2 devices" in capsys.readouterr().out


def test_wrong_bytes_are_not_timed(reference):
    """The first payload is looked at."""
    with find_fault("transfer/canary").planted(), pytest.raises(RuntimeError, match="other values than were sent"):
        at_once(reference, SIZE, [HOST, HOST], rounds=1)
