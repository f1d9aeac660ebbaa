"""When to restart after a fault, and when not any more."""

from __future__ import annotations

from collections import deque

from naiad.server.config import RestartPolicy

__all__ = ["RestartHistory"]


class RestartHistory:
    """Restarts within the policy's window; times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._times_s: deque[float] = deque()

    def next_pause_s(self, now_s: float) -> float | None:
        """Count one more restart at `now_s`: the pause before it, or None when it is one too many."""
        policy = self._policy
        while self._times_s and now_s - self._times_s[0] > policy.window_s:
            self._times_s.popleft()
        recent = len(self._times_s)
        if recent >= policy.max_restarts:
            return None
        self._times_s.append(now_s)
        return min(policy.first_pause_s * 2.0 ** (recent - 1), policy.max_pause_s) if recent else 0.0
