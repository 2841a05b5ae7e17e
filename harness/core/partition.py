"""Splits work over machines or workers by expected time."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

LONGEST = 1e9
"""Seconds; no job or boot takes more."""
STEP = 1000
"""Targets are tried in steps of a thousandth of the lower bound."""
_NANOSECONDS = 1_000_000_000


class JobError(ValueError):
    """A job, or the number of parts, cannot be: the text names it and says what to give."""


@dataclass(frozen=True)
class Job:
    """One test. Jobs of one `boot` share an engine, which takes `boot_seconds` to come up wherever one of them runs.

    A job whose `boot` is "" shares with nobody. Seconds are from 0 to LONGEST.
    """

    name: str
    seconds: float
    boot: str = ""
    boot_seconds: float = 0.0


def partition(jobs: Sequence[Job], parts: int) -> list[list[Job]]:
    """The jobs in `parts` lists, some of which may be empty: by expected time, longest first, the same for the same jobs in any order.

    The longest part comes first, and in a part the longest job; ties go by name. What shares a boot stays together, unless a split makes
    the longest part shorter though the boot is then paid twice; no two pieces of a boot would fit in one part as long as the longest.

    With L = lower_bound(jobs, parts), which no partition can beat, the longest part takes at most L plus the longest job plus the longest
    boot, to a thousandth of L: so it is within 5.1 % of L wherever those two come to 5 % of it. Where no boot costs anything it is also
    within 4/3 - 1 / (3 parts) of the best there is (R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969).

    Raises JobError for a part count below 1, seconds out of range, two jobs of one name, or a boot that takes two times.
    """
    groups, bound = _groups(jobs, parts), _lower_bound(jobs, parts)
    whole = _longest_first(groups, parts)
    best, least = whole, max(_load(part) for part in whole)
    if least > bound + bound // STEP:
        split = _smallest_target(groups, parts, bound)
        if max(_load(part) for part in split) < least:
            best = split
    named = [sorted((job for piece in part for job in piece.jobs), key=_by_length) for part in best]
    return sorted(named, key=lambda part: (-seconds(part), not part, [job.name for job in part]))


def seconds(part: Iterable[Job]) -> float:
    """What one part takes: its jobs, and each of their boots once."""
    part = list(part)
    shared = {job.boot: job.boot_seconds for job in part if job.boot}
    alone = [job.boot_seconds for job in part if not job.boot]
    return fsum([*(job.seconds for job in part), *shared.values(), *alone])


def lower_bound(jobs: Sequence[Job], parts: int) -> float:
    """Seconds that the longest part takes in every partition, however it is made: the greatest of three.

    - The longest job with its boot.
    - The least T at which the work goes into `parts` times T. A part that holds any of a boot's jobs has T - boot_seconds left for them, so
      a boot whose jobs take W together is paid at least ceil(W / (T - boot_seconds)) times. Where boots cost nothing this is the total
      divided by `parts`.
    - For each k, of the k * parts + 1 longest jobs some part holds k + 1: at least the k + 1 shortest of them, and their shortest boot.

    The seconds are rounded to nanoseconds first. Raises JobError as `partition` does.
    """
    _groups(jobs, parts)
    return _lower_bound(jobs, parts) / _NANOSECONDS


@dataclass(frozen=True)
class _Piece:
    """Jobs that stay in one part, shortest first, with their boot: all of a boot, or what is left of it. Times are in nanoseconds."""

    jobs: list[Job]
    times: list[int]
    boot: int

    @property
    def size(self) -> int:
        return self.boot + sum(self.times)


def _by_length(job: Job) -> tuple[float, str]:
    return -job.seconds, job.name


def _time(value: float) -> int:
    return round(value * _NANOSECONDS)


def _load(part: Iterable[_Piece]) -> int:
    return sum(piece.size for piece in part)


def _groups(jobs: Sequence[Job], parts: int) -> list[_Piece]:
    """What is not split without need: the jobs of a boot that costs something, and each other job alone; the longest first."""
    if parts < 1:
        raise JobError(f"{parts} parts: give 1 or more")
    shared: dict[str, list[Job]] = {}
    alone: list[list[Job]] = []
    names: set[str] = set()
    for job in jobs:
        if job.name in names:
            raise JobError(f"{job.name}: two jobs have this name; give one another")
        names.add(job.name)
        for field, value in (("seconds", job.seconds), ("boot_seconds", job.boot_seconds)):
            if not 0 <= value <= LONGEST:
                raise JobError(f"{job.name}: {field} = {value}: give 0 to {LONGEST:g}")
        if not job.boot:
            alone.append([job])
            continue
        same = shared.setdefault(job.boot, [])
        if same and same[0].boot_seconds != job.boot_seconds:
            raise JobError(f"{job.name}: boot {job.boot} takes {job.boot_seconds} s, and {same[0].boot_seconds} s for {same[0].name}")
        same.append(job)
    groups = alone
    for same in shared.values():
        groups += [same] if _time(same[0].boot_seconds) else [[job] for job in same]
    return sorted(map(_piece, groups), key=lambda piece: (-piece.size, piece.jobs[0].name))


def _piece(jobs: list[Job]) -> _Piece:
    jobs = sorted(jobs, key=_by_length, reverse=True)
    return _Piece(jobs, [_time(job.seconds) for job in jobs], _time(jobs[0].boot_seconds))


def _longest_first(groups: list[_Piece], parts: int) -> list[list[_Piece]]:
    """Each group whole, in the part with the least to do."""
    loads = [(0, number) for number in range(parts)]
    filled: list[list[_Piece]] = [[] for _ in loads]
    for piece in groups:
        load, number = loads[0]
        filled[number].append(piece)
        heapq.heapreplace(loads, (load + piece.size, number))
    return filled


def _smallest_target(groups: list[_Piece], parts: int, bound: int) -> list[list[_Piece]]:
    """The packing of the smallest target, in steps above the bound, that was found to hold everything."""
    low, high = -1, 0
    while (packed := _pack(groups, parts, bound + bound * high // STEP)) is None:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        tried = _pack(groups, parts, bound + bound * middle // STEP)
        if tried is None:
            low = middle
        else:
            packed, high = tried, middle
    return packed


def _pack(groups: list[_Piece], parts: int, target: int) -> list[list[_Piece]] | None:
    """Each group, longest first, in the fullest part that has room for it whole, or else as much of it as goes into the emptiest.

    None where a job has room nowhere. That takes a target below lower bound + longest job + longest boot: every part is then full but for a
    job and a boot, and those in which a group was split, of which each cost one boot more, but for a job.
    """
    rooms = [(target, number) for number in range(parts)]
    filled: list[list[_Piece]] = [[] for _ in rooms]
    waiting = [(-piece.size, piece.jobs[0].name, piece) for piece in groups]
    while waiting:
        size, _, piece = heapq.heappop(waiting)
        at = bisect_left(rooms, (-size, -1))
        if at < parts:
            room, number = rooms.pop(at)
            filled[number].append(piece)
            insort(rooms, (room + size, number))
            continue
        room, number = rooms.pop()
        taken, left = _divide(piece, room)
        if taken is None:
            return None
        filled[number].append(taken)
        insort(rooms, (room - taken.size, number))
        heapq.heappush(waiting, (-left.size, left.jobs[0].name, left))
    return filled


def _divide(piece: _Piece, room: int) -> tuple[_Piece | None, _Piece]:
    """What fits in the room of a piece that does not fit whole, longest first, and what is left; None where nothing fits."""
    jobs, times, room = list(piece.jobs), list(piece.times), room - piece.boot
    taken: list[Job] = []
    while at := bisect_right(times, room):
        taken.append(jobs.pop(at - 1))
        room -= times.pop(at - 1)
    return (_piece(taken) if taken else None), _Piece(jobs, times, piece.boot)


def _lower_bound(jobs: Sequence[Job], parts: int) -> int:
    """`lower_bound` in nanoseconds."""
    boots: dict[tuple[str, str], int] = {}
    work: dict[tuple[str, str], int] = {}
    for job in jobs:
        key = job.boot, "" if job.boot else job.name
        boots[key] = _time(job.boot_seconds)
        work[key] = work.get(key, 0) + _time(job.seconds)
    free = sum(work[key] for key, boot in boots.items() if not boot)
    costly = [(work[key], boot) for key, boot in boots.items() if boot]
    longest = max((_time(job.seconds) + _time(job.boot_seconds) for job in jobs), default=0)
    low, high = longest - 1, longest + free + sum(map(sum, costly))
    while high - low > 1:
        middle = (low + high) // 2
        paid = sum(total + boot * max(1, -(-total // max(1, middle - boot))) for total, boot in costly)
        low, high = (low, middle) if free + paid <= parts * middle else (middle, high)
    return max(high, _crowded(jobs, parts))


def _crowded(jobs: Sequence[Job], parts: int) -> int:
    """The third of the lower bounds."""
    ordered = sorted(((_time(job.seconds), _time(job.boot_seconds)) for job in jobs), reverse=True)
    most, boot, sums = 0, _time(LONGEST), [0]
    for number, (time, own) in enumerate(ordered):
        sums.append(sums[-1] + time)
        boot = min(boot, own)
        if number and number % parts == 0:
            most = max(most, sums[-1] - sums[number - number // parts] + boot)
    return most
