"""Servers in processes of their own: found healthy, quoted when they die, gone when their holder is; and what is read of their metrics."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import lifeline
from harness.tier.engines.known_servers import SGLANG, UNKNOWN, VLLM, Metric, Samples, known_server
from harness.tier.engines.launched import Command
from harness.tier.engines.served import Served, free_port

HEALTHY = """
import http.server
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", {port}), Health).serve_forever()
"""
LIMIT = 20.0


def served(program, url, deadline=LIMIT):
    return Served(lambda log: Command([sys.executable, "-u", "-c", program], {}, log), url, deadline)


def is_gone(pid):
    """Whether the process ends in time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], LIMIT)[0])
    finally:
        os.close(process)


def test_a_healthy_server_is_found_and_stopped():
    port = free_port()
    server = served("import os; print(os.getpid())" + HEALTHY.format(port=port), f"http://127.0.0.1:{port}")
    pid = int(server.log().split()[0])

    server.check()
    server.close()
    server.close()

    assert is_gone(pid)


def test_a_server_that_dies_is_quoted():
    with pytest.raises(RuntimeError, match="status 3 before it was healthy; its log ends: no such model"):
        served("print('no such model'); raise SystemExit(3)", "http://127.0.0.1:9")


def test_a_server_that_is_never_healthy_is_given_up():
    with pytest.raises(TimeoutError, match=r"not healthy after 0.3 s \(option deadline\)"):
        served("import signal; signal.pause()", "http://127.0.0.1:9", 0.3)


def test_a_command_that_there_is_not():
    with pytest.raises(RuntimeError, match="no-such-command: No such file"):
        Served(lambda log: Command(["no-such-command"], {}, log), "http://127.0.0.1:9", LIMIT)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_server_ends_with_a_holder_that_is_killed(stubborn):
    """Also where a signal was sent to the whole group before, as by timeout(1)."""
    program = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    holder = subprocess.Popen(
        [sys.executable, lifeline.__file__, sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pid = int(holder.stdout.readline())
    if stubborn:
        holder.send_signal(signal.SIGTERM)

    holder.stdin.close()

    assert is_gone(pid)
    holder.wait(LIMIT)
    holder.stdout.close()


METRICS = """# HELP vllm:prefix_cache_hits_total hits
vllm:prefix_cache_hits_total{engine="0",model_name="a"} 16.0
vllm:prefix_cache_hits_total{engine="1",model_name="a"} 32.0
sglang:cached_tokens_total{cache_source="host",model_name="a"} 7.0
sglang:cached_tokens_total{cache_source="device",model_name="a"} 5.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="1024"} 1.0
"""


def test_metrics_are_summed_over_what_the_labels_leave_open():
    samples = Samples.parse(METRICS)

    assert samples.total(VLLM.hits["device"]) == 48.0
    assert {tier: samples.total(metric) for tier, metric in SGLANG.hits.items()} == {"device": 5.0, "host": 7.0, "storage": None}
    assert samples.labels(VLLM.info)["num_gpu_blocks"] == "1024"
    assert samples.each("sglang:cached_tokens_total", "cache_source") == {"host": 7.0, "device": 5.0}
    assert samples.total(Metric("vllm:prefix_cache")) is None


def test_a_server_is_known_by_its_owner():
    assert known_server(["vllm"]) is VLLM
    assert known_server(["somebody"]) is UNKNOWN
    assert known_server([]) is UNKNOWN


def test_the_folder_of_a_server_goes_with_it():
    port = free_port()
    server = served(HEALTHY.format(port=port), f"http://127.0.0.1:{port}")
    folder = Path(server._folder.name)

    assert folder.exists()
    server.close()

    assert not folder.exists()
