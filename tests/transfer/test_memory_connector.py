"""The connector in memory."""

import threading

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.memory import MemoryConnectorEngine
from harness.transfer.reference.memory import MemoryConnector


@pytest.fixture
def connector():
    return MemoryConnector()


def test_what_was_put_is_got(connector):
    """Bytes and their number."""
    assert connector.put("0", "1", "k", b"abc") == (True, 3, None)
    assert connector.get("0", "1", "k") == (b"abc", 3)


@pytest.mark.parametrize("slot", [("0", "1", "other"), ("0", "2", "k"), ("1", "1", "k")])
def test_other_slots_are_empty(connector, slot):
    """A payload is found under its stages and key only."""
    connector.put("0", "1", "k", b"abc")
    assert connector.get(*slot) is None


def test_many_reads_until_a_discard(connector):
    """The first reader takes nothing from the second; a discard takes it from all."""
    connector.put("0", "1", "k", b"abc")
    assert connector.get("0", "1", "k") == connector.get("0", "1", "k") == (b"abc", 3)
    connector.discard("0", "1", "k")
    assert connector.get("0", "1", "k") is None


def test_discard_of_nothing_is_nothing(connector):
    """Twice, and of a key that never was."""
    connector.discard("0", "1", "k")
    connector.discard("0", "1", "k")
    assert connector.usage() == {"segments": 0, "bytes": 0}


@pytest.mark.parametrize("make", [bytearray, lambda b: torch.frombuffer(bytearray(b), dtype=torch.uint8)])
def test_the_senders_buffer_may_be_reused(connector, make):
    """What is held is a copy."""
    data = make(b"abc")
    connector.put("0", "1", "k", data)
    data[0] = 0
    assert connector.get("0", "1", "k") == (b"abc", 3)


def test_a_second_put_replaces_the_first(connector):
    """One payload a key, the newest."""
    connector.put("0", "1", "k", b"old")
    connector.put("0", "1", "k", b"newer")
    assert connector.get("0", "1", "k") == (b"newer", 5)
    assert connector.usage() == {"segments": 1, "bytes": 5}


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_the_last_reader_frees_a_payload(connector, readers):
    """It is there until then, for anybody; one more is nothing."""
    connector.put("0", "1", "k", b"abc", readers=readers)
    for _ in range(readers):
        assert connector.holds("0", "1", "k")
        assert connector.get("0", "1", "k") == (b"abc", 3)
        connector.done("0", "1", "k")
    assert not connector.holds("0", "1", "k")
    connector.done("0", "1", "k")
    assert connector.usage() == {"segments": 0, "bytes": 0}


def test_done_is_of_one_slot(connector):
    """Other stages and keys keep what they have; a second put has readers of its own."""
    connector.put("0", "1", "k", b"abc", readers=2)
    connector.done("0", "2", "k")
    connector.done("1", "1", "k")
    connector.done("0", "1", "other")
    connector.done("0", "1", "k")
    connector.put("0", "1", "k", b"new", readers=2)
    connector.done("0", "1", "k")
    assert connector.get("0", "1", "k") == (b"new", 3)


def test_a_discard_takes_it_from_every_reader(connector):
    """However many were promised it."""
    connector.put("0", "1", "k", b"abc", readers=3)
    connector.discard("0", "1", "k")
    assert not connector.holds("0", "1", "k")


@pytest.mark.parametrize("readers", [0, -1])
def test_a_payload_has_a_reader(connector, readers):
    """One that nobody reads would be held for ever."""
    with pytest.raises(ValueError, match=f"readers = {readers}"):
        connector.put("0", "1", "k", b"abc", readers=readers)
    assert connector.usage()["segments"] == 0


def test_usage_counts_segments_and_bytes(connector):
    """Each held payload once; none after close."""
    connector.put("0", "1", "a", b"abc")
    connector.put("0", "1", "b", b"de")
    assert connector.usage() == {"segments": 2, "bytes": 5}
    connector.close()
    assert connector.usage() == {"segments": 0, "bytes": 0}


def test_a_payload_is_not_seen_before_it_is_whole(connector, monkeypatch):
    """While the copy is made there is nothing under the key."""
    seen = []
    copy = MemoryConnector._copy

    def copying(self, data):
        seen.append(self.get("0", "1", "k"))
        return copy(self, data)

    monkeypatch.setattr(MemoryConnector, "_copy", copying)
    connector.put("0", "1", "k", b"abc")
    assert seen == [None]


def test_threads_do_not_mix_payloads(connector):
    """Eight writers over one key and one reader: every reading is one writer's payload, whole."""
    writers = [threading.Thread(target=lambda n=n: [connector.put("0", "1", "k", bytes([n]) * 5000) for _ in range(50)]) for n in range(8)]
    for writer in writers:
        writer.start()
    readings = [connector.get("0", "1", "k") for _ in range(500)]
    for writer in writers:
        writer.join()
    readings.append(connector.get("0", "1", "k"))
    assert all(len(data) == size == 5000 and len(set(data)) == 1 for data, size in filter(None, readings))


def test_the_engine_counts_and_closes_its_connectors():
    """`usage` adds up what all of them hold; `close` empties them."""
    engine = MemoryConnectorEngine.build(EngineConfig("cpu", "cpu", {}, 0), VirtualClock())
    first, second = engine.connector(), engine.connector()
    first.put("0", "1", "k", b"abc")
    second.put("0", "1", "k", b"de")
    assert engine.usage() == {"segments": 2, "bytes": 5}
    engine.close()
    assert first.get("0", "1", "k") is None
    assert engine.usage() == {"segments": 0, "bytes": 0}


def test_the_engine_refuses_options():
    """It has none."""
    with pytest.raises(ValueError, match=r"unknown options \['speed'\]"):
        MemoryConnectorEngine.build(EngineConfig("cpu", "cpu", {"speed": "9"}, 0), VirtualClock())
