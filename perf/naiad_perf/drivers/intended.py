"""When a load called for each request, worked out from when a generator that does not say so sent it.

Latencies count from these times, so that a client that falls behind does not hide the wait (coordinated
omission).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

__all__ = ["freed_places", "scheduled"]


def freed_places(sent_ns: Sequence[int], ended_ns: Sequence[int | None], places: int) -> list[int]:
    """Return when a place became free for each request of a closed loop.

    The first `places` requests take places that nobody waited for: their time is that of sending. Every
    later one takes the place that became free first among those not yet taken; if only places are left of
    which nobody knows when they became free, its time is that of sending as well.

    Args:
        sent_ns: times of sending, rising.
        ended_ns: when the final message of each came; None where not known.
        places: requests at a time.

    Raises:
        ValueError: more than `places` were under way at once: then the load was another one.
    """
    free: list[int] = []
    unknown = 0
    intended: list[int] = []
    for position, (sent, ended) in enumerate(zip(sent_ns, ended_ns, strict=True)):
        if position < places:
            intended.append(sent)
        elif free and free[0] <= sent:
            intended.append(heapq.heappop(free))
        elif unknown:
            unknown -= 1
            intended.append(sent)
        else:
            raise ValueError(f"request {position} was sent while {places} others were under way")
        if ended is None:
            unknown += 1
        else:
            heapq.heappush(free, ended)
    return intended


def scheduled(sent_ns: Sequence[int], due_ns: Sequence[int]) -> list[int]:
    """Return when each request of an open loop was due, on the clock of `sent_ns`.

    No request is sent before it is due, so the latest start that no sending contradicts is the earliest
    ``sent - due``. Should even the most punctual request have been late, all are late by that little more.
    """
    start = min((sent - due for sent, due in zip(sent_ns, due_ns, strict=True)), default=0)
    return [start + due for due in due_ns]
