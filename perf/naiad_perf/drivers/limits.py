"""How long a load may take before its generator must be stuck."""

from __future__ import annotations

from naiad_perf.workload.load import ClosedLoop, LoadTask

__all__ = ["longest_s", "places"]

_MARGIN_S = 60.0


def places(task: LoadTask) -> int:
    """Return how many requests can be under way at once; never more than there are."""
    wanted = task.load.concurrency if isinstance(task.load, ClosedLoop) else len(task.prompts)
    return min(wanted, len(task.prompts))


def longest_s(task: LoadTask) -> float:
    """Return the seconds that the load takes if every request takes all the time it may, and a margin."""
    if isinstance(task.load, ClosedLoop):
        return -(-len(task.prompts) // places(task)) * task.timeout_s + _MARGIN_S
    return task.load.due_ns[-1] / 1e9 + task.timeout_s + _MARGIN_S
