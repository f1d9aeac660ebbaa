"""When the requests of an open loop are due. Made here, so that every driver gets the same times."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["poisson_arrivals", "replayed_arrivals"]

_NS_PER_S = 1_000_000_000


def poisson_arrivals(count: int, rate: float, seed: int) -> tuple[int, ...]:
    """Return due times of a Poisson process: independent, exponentially distributed gaps.

    The gaps depend on `seed` only and shrink with the rate, so every rate meets the same bursts.

    Args:
        count: requests.
        rate: mean requests a second.
        seed: of the pseudo-random gaps.

    Returns:
        Nanoseconds after the start, the first 0, never falling.
    """
    source = random.Random(f"{seed}|arrivals")  # noqa: S311 (repeatable, not secret)
    now_s = 0.0
    due: list[int] = []
    for _ in range(count):
        due.append(round(now_s * _NS_PER_S))
        now_s += source.expovariate(1.0) / rate
    return tuple(due)


def replayed_arrivals(arrivals_ns: Sequence[int], stretch: float) -> tuple[int, ...]:
    """Return a trace's arrivals as due times: the first at 0, all gaps times `stretch`."""
    first = arrivals_ns[0] if arrivals_ns else 0
    return tuple(round((arrival - first) * stretch) for arrival in arrivals_ns)
