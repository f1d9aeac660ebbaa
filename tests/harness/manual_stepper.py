"""A stepper whose steps the test takes, and the clock to go with it.

It refuses what OpenVINO's pipeline refuses: a key used twice, more sequences than it holds, two threads at
once, and every call after a failed step until it is rebuilt.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from naiad.contract.generation import FinishReason, GenerationRequest
from naiad.engines.base import EngineLimits, EngineStats
from naiad.engines.stepper import Stepper, StepResult

__all__ = ["DEADLINE_S", "ManualClock", "ManualStepper", "Tokens"]

DEADLINE_S = 20.0


class ManualClock:
    """Monotonic seconds that pass only when told."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """Return the time."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("a monotonic clock does not go back")
        self._now_s += seconds


@dataclass(frozen=True)
class Tokens:
    """What one sequence yields in a step."""

    ids: Sequence[int]
    reason: FinishReason | None = None
    log_probs: Sequence[float] = field(default_factory=tuple)


class ManualStepper(Stepper):
    """Yields what `advance` says, for sequences named by their request id.

    Args:
        limits: as an engine's.
        max_sequences: most sequences at once.
        refuse_add: called for each added request; what it raises is what `add` raises.
        refuse_abort: what `abort` raises, if anything.
        rebuild_fails: the exception of every `rebuild`; after it the engine is unusable.
    """

    def __init__(
        self,
        limits: EngineLimits,
        *,
        max_sequences: int = 4,
        refuse_add: Callable[[GenerationRequest], None] | None = None,
        refuse_abort: Exception | None = None,
        rebuild_fails: Exception | None = None,
    ) -> None:
        self._limits = limits
        self._max_sequences = max_sequences
        self._refuse_add = refuse_add
        self._refuse_abort = refuse_abort
        self._rebuild_fails = rebuild_fails
        self._changed = threading.Condition()
        self._script: deque[Mapping[str, Tokens] | Exception] = deque()
        self._live: dict[int, GenerationRequest] = {}
        self._used_keys: set[int] = set()
        self._inside = threading.Lock()
        self._settled = 0
        self._taken_at = 0
        self._in_step = False
        self._broken = False
        self._free_running = False
        self.added: list[str] = []
        self.aborted: list[str] = []
        self.steps = 0
        self.rebuilds = 0
        self.violations: list[str] = []

    # What the loop calls.

    @property
    def limits(self) -> EngineLimits:
        """As given."""
        return self._limits

    @property
    def max_sequences(self) -> int:
        """As given."""
        return self._max_sequences

    def check(self, request: GenerationRequest) -> None:
        """Everything is supported."""

    def add(self, key: int, request: GenerationRequest) -> None:
        """Take a sequence in."""
        with self._alone("add"), self._changed:
            if self._refuse_add is not None:
                self._refuse_add(request)
            if key in self._used_keys:
                self._violated(f"key {key} was used before")
            if len(self._live) >= self._max_sequences:
                self._violated(f"more than {self._max_sequences} sequences")
            self._used_keys.add(key)
            self._live[key] = request
            self.added.append(request.request_id)
            self._changed.notify_all()

    def step(self) -> list[StepResult]:
        """Wait for the test's next step and yield what it says."""
        with self._alone("step"), self._changed:
            if not self._live:
                self._violated("a step without sequences")
            self._settled += 1
            self._in_step = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._script or self._free_running, DEADLINE_S):
                self._violated(f"the test took no step within {DEADLINE_S:g} s")
            self._in_step = False
            self.steps += 1
            self._taken_at = self._settled
            self._changed.notify_all()
            if not self._script:
                return []
            scripted = self._script.popleft()
            if isinstance(scripted, Exception):
                self._broken = True
                raise scripted
            return [self._result(name, tokens) for name, tokens in scripted.items()]

    def abort(self, key: int) -> None:
        """Forget a sequence."""
        with self._alone("abort"), self._changed:
            if self._refuse_abort is not None:
                self._broken = True
                raise self._refuse_abort
            request = self._live.pop(key, None)
            if request is not None:
                self.aborted.append(request.request_id)
            self._changed.notify_all()

    def rebuild(self) -> None:
        """Start empty, or fail for good."""
        with self._changed:
            self._live.clear()
            self.rebuilds += 1
            self._changed.notify_all()
            if self._rebuild_fails is not None:
                self._broken = True
                raise self._rebuild_fails
            self._broken = False

    def stats(self) -> EngineStats:
        """Count sequences; one KV block each."""
        with self._changed:
            if self._broken:
                self._violated("stats of a broken engine")
            self._settled += 1
            self._changed.notify_all()
            live = len(self._live)
            return EngineStats(
                max_active=self._max_sequences,
                generation=live,
                kv_blocks_max=64,
                kv_blocks_used=live,
                kv_tokens_per_block=16,
                iterations=self.steps,
            )

    # What a test calls.

    @property
    def live(self) -> list[str]:
        """Request ids of the sequences inside."""
        with self._changed:
            return [request.request_id for request in self._live.values()]

    def advance(self, **tokens: Sequence[int] | Tokens) -> None:
        """Take one step that yields `tokens` by request id; return when all of it was delivered."""
        self._take(
            {name: given if isinstance(given, Tokens) else Tokens(given) for name, given in tokens.items()}
        )

    def break_down(self, error: Exception | None = None) -> None:
        """Take one step that raises."""
        with self._changed:
            self._script.append(error or RuntimeError("the engine's own words, with /paths"))
            self._changed.notify_all()

    def wait_for(self, *names: str) -> None:
        """Take steps without news until requests of these ids were added."""

        def added() -> bool:
            if self._in_step and not self._script and not set(names) <= set(self.added):
                self._script.append({})
                self._changed.notify_all()
            return set(names) <= set(self.added)

        with self._changed:
            if not self._changed.wait_for(added, DEADLINE_S):
                raise AssertionError(f"{set(names) - set(self.added)} not added within {DEADLINE_S:g} s")

    def let_go(self) -> None:
        """Make every further step yield nothing at once, so that the loop can be closed."""
        with self._changed:
            self._free_running = True
            self._changed.notify_all()

    def _take(self, scripted: Mapping[str, Tokens]) -> None:
        with self._changed:
            names = {request.request_id for request in self._live.values()}
            if not set(scripted) <= names:
                raise AssertionError(f"no sequence {set(scripted) - names} inside; there are {names}")
            # The loop is in this step, or on its way into it: entering the next one, or idleness, settles it.
            taken = self.steps + 1
            self._script.append(scripted)
            self._changed.notify_all()

            def delivered() -> bool:
                return self.steps >= taken and self._settled > self._taken_at

            if not self._changed.wait_for(delivered, DEADLINE_S):
                raise AssertionError("the step's tokens were not delivered")

    def _result(self, name: str, tokens: Tokens) -> StepResult:
        key = next(key for key, request in self._live.items() if request.request_id == name)
        if tokens.reason is not None:
            del self._live[key]
        return StepResult(key, list(tokens.ids), list(tokens.log_probs), tokens.reason)

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if not self._inside.acquire(blocking=False):
            self._violated(f"{what} while another call was running")
        try:
            if self._broken:
                raise RuntimeError(f"{what} of a broken engine")
            yield
        finally:
            self._inside.release()

    def _violated(self, what: str) -> None:
        self.violations.append(what)
        raise AssertionError(what)
