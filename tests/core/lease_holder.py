"""A process of the lease tests: takes cards, says so, and holds them until the end of its input. Run as a program.

Arguments: the folder of the locks, the number of cards, the deadline, the log, flags. It prints what CUDA is to see and the number of the
child that it forked, or `refused` and why. In the log it notes `begin` and `end`, with its number and its cards, while it holds them.
"""

import os
import sys
from pathlib import Path

from harness.core import leases, locks


def note(log, word, lease):
    with Path(log).open("a") as file:
        file.write(f"{word} {os.getpid()} {' '.join(str(card.index) for card in lease.cards)}\n")


def main(folder, number, deadline, log, *flags):
    if "--without-locks" in flags:
        locks.FileLock.try_lock = lambda _lock: True
    try:
        lease = leases.take(int(number), deadline=float(deadline), folder=Path(folder))
    except leases.LeaseError as refused:
        print("refused", refused, flush=True)
        return
    note(log, "begin", lease)
    if "--forks-keep-locks" in flags:
        locks._OPEN.clear()
    child = os.fork() if "--forks" in flags else 0
    if "--forks" in flags and not child:
        sys.stdin.read()
        os._exit(0)
    print(os.environ["CUDA_VISIBLE_DEVICES"], child, flush=True)
    sys.stdin.read()
    note(log, "end", lease)


main(*sys.argv[1:])
