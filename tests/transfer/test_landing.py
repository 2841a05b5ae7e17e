"""Where payloads land: host buffers that are reused only when nobody writes to them any more, and CUDA devices."""

import pytest
import torch

from harness.core.clock import TICK, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.protocol import Delivery, KVPayload, Outcome, TransferConfig
from harness.transfer.reference import landing as module
from harness.transfer.reference.landing import Berth, DeviceCopy, LandingPool, record_use
from harness.transfer.workload import Workload, expected_rows

WORK = Workload()
SENDER = WORK.endpoint
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def pool():
    return LandingPool()


@pytest.mark.parametrize(("size", "reused"), [(100, True), (50, True), (49, False), (101, False)])
def test_a_buffer_that_fits_is_used_again(pool, size, reused):
    """One large enough, and not more than twice as large; another size gets memory of its own."""
    first = pool.take(100)
    pool.give_back(first)
    second = pool.take(size)
    assert (second.data_ptr() == first.data_ptr()) is reused
    assert len(second) >= size
    assert pool.usage() == len(second)


def test_what_was_delivered_is_not_used_again(pool):
    """Its memory is the request's now, and counts no more."""
    first = pool.take(100)
    pool.let_go(first)
    assert pool.usage() == 0
    assert pool.take(100).data_ptr() != first.data_ptr()


def test_one_buffer_is_kept(pool):
    """The last that was given back: memory is bounded by what one transfer needs."""
    first, second = pool.take(100), pool.take(100)
    assert pool.usage() == 200
    pool.give_back(first)
    pool.give_back(second)
    assert pool.usage() == 0
    assert pool.take(100).data_ptr() == second.data_ptr()
    assert pool.take(100).data_ptr() not in (first.data_ptr(), second.data_ptr())


@pytest.mark.parametrize("end", ["hand_over", "give_back"])
@pytest.mark.parametrize("again", ["hand_over", "give_back"])
def test_a_berth_ends_once(pool, end, again):
    """In the one way or the other; what comes after changes nothing."""
    berth = Berth(pool)
    buffer = berth.take(100)
    getattr(berth, end)()
    getattr(berth, again)()
    assert pool.usage() == 0
    assert (pool.take(100).data_ptr() == buffer.data_ptr()) is (end == "give_back")


def test_a_berth_takes_one_buffer(pool):
    """A second would be lost."""
    berth = Berth(pool)
    berth.take(1)
    with pytest.raises(RuntimeError, match="has its buffer already"):
        berth.take(1)
    assert pool.usage() == 1


def test_a_berth_that_took_none_ends_all_the_same(pool):
    """A miss lands nowhere."""
    Berth(pool).hand_over()
    Berth(pool).give_back()
    assert pool.usage() == 0


class Lands:
    """A receiver whose buffers are told by their addresses, in the order in which they were taken."""

    def __init__(self, stage, monkeypatch):
        self.stage, self.receiver, self.taken = stage, stage.deploy(), []
        take = LandingPool.take

        def noting(pool, size):
            buffer = take(pool, size)
            # Kept, so that the allocator gives no freed address a second time.
            self.taken.append(buffer)
            return buffer

        monkeypatch.setattr(LandingPool, "take", noting)

    def addresses(self):
        return [buffer.data_ptr() for buffer in self.taken]


@pytest.fixture
def lands(stage, monkeypatch):
    return Lands(stage, monkeypatch)


def test_a_dropped_transfers_buffer_is_not_used_while_its_copy_is_under_way(stage, lands):
    """A receive in the foreground begins and ends meanwhile, in memory of its own; the copy that nobody wants writes elsewhere."""
    stage.engine.lab.lag("copy", 10)
    stage.send("dropped")
    stage.send("r")
    lands.receiver.start_prefetch("dropped", SENDER)
    stage.clock.advance(TICK)
    lands.receiver.abort("dropped")
    held = lands.receiver.usage()["landing_bytes"]
    assert held == len(lands.taken[0]) > 0

    stage.engine.lab.lag("copy", 0)
    delivery = lands.receiver.receive("r", SENDER, 0.0)
    assert (len(lands.taken), len(set(lands.addresses()))) == (2, 2)
    assert lands.receiver.usage()["landing_bytes"] == held
    stage.clock.advance(20 * TICK)
    assert stage.is_sent(delivery)
    assert lands.receiver.usage()["landing_bytes"] == 0


@pytest.mark.parametrize("when", ["under way", "fetched"])
def test_a_dropped_transfers_buffer_is_used_once_its_copy_has_ended(stage, lands, when):
    """The twin of the above: whether it was dropped before or after its end."""
    stage.engine.lab.lag("copy", 10)
    stage.send("dropped")
    stage.send("r")
    lands.receiver.start_prefetch("dropped", SENDER)
    stage.clock.advance(TICK if when == "under way" else 20 * TICK)
    lands.receiver.abort("dropped")
    stage.clock.advance(20 * TICK)
    assert lands.receiver.usage()["landing_bytes"] == 0
    assert stage.is_sent(lands.receiver.receive("r", SENDER, 0.0))
    assert (len(lands.taken), len(set(lands.addresses()))) == (2, 1)


def test_a_consumed_payload_keeps_its_memory(stage, lands):
    """Nothing that lands later lands there: not the transfer after it, nor one that took its place in the pool."""
    deliveries = []
    for request in ("a", "b", "c"):
        stage.send(request)
        lands.receiver.start_prefetch(request, SENDER)
        deliveries.append(lands.receiver.consume(request))
    assert len(set(lands.addresses())) == 3
    assert all(map(stage.is_sent, deliveries))
    assert lands.receiver.usage()["landing_bytes"] == 0


@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_a_failed_transfers_buffer_is_used_again(stage, lands, how):
    """The copy failed, so nothing writes there."""
    stage.send("r")
    stage.engine.lab.fail_next("copy")
    assert stage.fetch(lands.receiver, how).outcome is Outcome.FAILED
    assert lands.receiver.usage()["landing_bytes"] == 0
    assert stage.is_sent(stage.fetch(lands.receiver, how))
    assert (len(lands.taken), len(set(lands.addresses()))) == (2, 1)


def test_a_host_payload_needs_no_stream():
    """Its use is recorded nowhere, with or without CUDA."""
    payload = KVPayload((torch.ones(1, 4, 8), None), (torch.ones(1, 4, 8), None))
    record_use(Delivery(Outcome.HIT, payload))


@needs_cuda
@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("size", [0, 1, 64, 65, 3 * 64 + 1])
def test_bytes_reach_a_device_through_staging(monkeypatch, pinned, size):
    """Chunk after chunk, the last one shorter; twice, so that staging buffers are reused."""
    monkeypatch.setattr(module, "CHUNK", 64)
    copy, device = DeviceCopy(), torch.device("cuda", 0)
    for seed in (1, 2):
        data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
        with copy.beside(device):
            landed = copy.to(data.pin_memory() if pinned else data, device)
        assert landed.is_cuda
        assert torch.equal(landed.cpu(), data)


@needs_cuda
@pytest.mark.parametrize("source", ["cpu", "cuda"])
def test_a_prefetch_lands_on_its_device(source):
    """From host or device pages: the right bits, on the device, usable on another stream at once."""
    engine = ReferenceTransfer.build(EngineConfig("gpu", "cuda", {}, 0), VirtualClock())
    manager = engine.deploy(None, engine.connector(), TransferConfig(WORK.layout()))
    kv = [pages.to(source) for pages in WORK.kv(torch.Generator().manual_seed(6))]
    for _ in range(20):
        manager.send("r", kv, [3, 0, 2], 10)
        manager.start_prefetch("r", WORK.endpoint, torch.device("cuda", 0))
        delivery = manager.consume("r")
        assert delivery.outcome is Outcome.HIT, delivery.reason
        with torch.cuda.stream(torch.cuda.Stream()):
            past = manager.apply(delivery)
            for layer, pages in enumerate(kv):
                keys, values = expected_rows(pages.cuda(), [3, 0, 2], 10)
                assert past.keys[layer].is_cuda
                assert torch.equal(past.keys[layer], keys)
                assert torch.equal(past.values[layer], values)
    engine.close()
