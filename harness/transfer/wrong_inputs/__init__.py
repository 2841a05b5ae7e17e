"""One wrong answer for each claim that no catalogued fault covers, so that every check is seen failing.

They come from no bug report: each says the opposite of one sentence, in the smallest place of the reference engine that can.
"""

from harness.transfer.wrong_inputs import (
    connector,
    connector_tcp,
    device,
    failure,
    holding,
    layouts,
    opt_in_and_prefetch,
    payload,
    processes,
    role,
    schedule,
    shm,
    worlds,
)

__all__ = [
    "connector",
    "connector_tcp",
    "device",
    "failure",
    "holding",
    "layouts",
    "opt_in_and_prefetch",
    "payload",
    "processes",
    "role",
    "schedule",
    "shm",
    "worlds",
]
