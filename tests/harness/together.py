"""Several blocking calls at once, started at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


def together(work: Callable[[Given], Result], given: Sequence[Given], limit_s: float = 60.0) -> list[Result]:
    """Return `work` of every item, each on a thread of its own; the first exception is raised."""
    gate = threading.Barrier(len(given))

    def run(item: Given) -> Result:
        gate.wait(limit_s)
        return work(item)

    with ThreadPoolExecutor(len(given)) as threads:
        return [future.result(limit_s) for future in [threads.submit(run, item) for item in given]]
