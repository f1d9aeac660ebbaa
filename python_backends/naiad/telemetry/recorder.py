"""Collects observations from serving threads for the one thread that pushes them to Triton."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from naiad.contract.generation import FinishReason
from naiad.telemetry.families import FAILURES, INPUT_TOKENS, ITL, OUTPUT_TOKENS, QUEUE, TTFT

__all__ = ["Recorder"]

# Every observation is one message to Triton's process, so per-token ones are thinned above this many a push.
MAX_INTERVALS = 32


class Recorder:
    """An `EngineObserver` whose observations `drain` hands over, by family name.

    Inter-token intervals beyond `MAX_INTERVALS` between two drains are thinned evenly: their distribution
    stays right, their count does not. Everything else is exact.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observations: defaultdict[str, list[float]] = defaultdict(list)
        self._failures: Counter[str] = Counter()

    def scheduled(self, queue_s: float) -> None:
        """Record a queue time."""
        self._observe(QUEUE.name, queue_s)

    def first_token(self, ttft_s: float) -> None:
        """Record a time to first token."""
        self._observe(TTFT.name, ttft_s)

    def next_tokens(self, interval_s: float, count: int) -> None:
        """Record the interval of `count` tokens that came together as that many equal ones."""
        with self._lock:
            self._observations[ITL.name] += [interval_s / count] * count

    def finished(self, prompt_tokens: int, output_tokens: int, reason: FinishReason) -> None:
        """Record the lengths of a request that ran."""
        self._observe(INPUT_TOKENS.name, prompt_tokens)
        self._observe(OUTPUT_TOKENS.name, output_tokens)

    def failed(self, code: str) -> None:
        """Count a failure; a code outside the closed set counts as INTERNAL."""
        with self._lock:
            self._failures[code if code in FAILURES.values else "INTERNAL"] += 1

    def drain(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """Return and forget what was observed: values by family name, failures by reason."""
        with self._lock:
            observations, self._observations = self._observations, defaultdict(list)
            failures, self._failures = self._failures, Counter()
        intervals = observations.get(ITL.name, [])
        if len(intervals) > MAX_INTERVALS:
            # Sorted first: in order of arrival, what comes in turns would be picked by its turn.
            ordered, stride = sorted(intervals), len(intervals) / MAX_INTERVALS
            observations[ITL.name] = [ordered[int((rank + 0.5) * stride)] for rank in range(MAX_INTERVALS)]
        return dict(observations), dict(failures)

    def _observe(self, family: str, value: float) -> None:
        with self._lock:
            self._observations[family].append(value)
