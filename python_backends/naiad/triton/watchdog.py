"""Ends what would otherwise wait for ever: deadlines, silent engines, callers that went away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from naiad.contract.errors import DeadlineExceeded, EngineStalled
from naiad.triton.answers import Answer

__all__ = ["LiveCall", "SilenceLimits", "Watchdog"]

_log = logging.getLogger(__name__)
LOOKS_PER_S = 100  # each asks Triton's process for a cancel, which takes time from the token path
DEADLINE_GRACE_S = 0.25  # the engine ends an overdue request itself; this is for one that cannot


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """Longest waits in seconds: for the first engine response, and between two."""

    first_s: float
    between_s: float


@dataclass(slots=True)
class LiveCall:
    """One call of the engine that is under way.

    Attributes:
        engine_id: request id of the call.
        answer: where its responses go.
        deadline_s: on the monotonic clock.
        heard_s: when the engine last answered, or the call began.
        started: whether the engine has answered at all.
        stopping: whether a stop request was sent.
    """

    engine_id: str
    answer: Answer
    deadline_s: float
    heard_s: float = field(default_factory=time.monotonic)
    started: bool = False
    stopping: bool = False

    def heard(self) -> None:
        """Note that the engine answered."""
        self.heard_s = time.monotonic()
        self.started = True


class Watchdog:
    """Looks at every live call each period, less often when there are many; `stop` stops an id."""

    def __init__(self, limits: SilenceLimits, period_s: float, stop: Callable[[str], None]) -> None:
        self._limits = limits
        self._period_s = period_s
        self._stop = stop
        self._stoppers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="naiad-stop")
        self._lock = threading.Lock()
        self._calls: dict[str, LiveCall] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="naiad-watchdog", daemon=True)
        self._thread.start()

    def watch(self, call: LiveCall) -> None:
        """Begin to look after a call."""
        with self._lock:
            self._calls[call.engine_id] = call

    def forget(self, call: LiveCall) -> None:
        """The call has ended by itself."""
        with self._lock:
            self._calls.pop(call.engine_id, None)

    def stop_engine(self, call: LiveCall) -> None:
        """Send the stop request once, without waiting for its answer."""
        with self._lock:
            if call.stopping:
                return
            call.stopping = True
        self._stoppers.submit(self._stop_logged, call.engine_id)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(timeout=10)
        self._stoppers.shutdown(wait=False, cancel_futures=True)

    def _stop_logged(self, engine_id: str) -> None:
        try:
            self._stop(engine_id)
        except Exception:  # noqa: BLE001 - the call ends by its limits all the same
            _log.exception("stop request for %s failed", engine_id)

    def _run(self) -> None:
        pause_s = self._period_s
        while not self._closing.wait(pause_s):
            with self._lock:
                calls = list(self._calls.values())
            pause_s = max(self._period_s, len(calls) / LOOKS_PER_S)
            for call in calls:
                try:
                    self._look_at(call)
                except Exception:  # noqa: BLE001 - the other calls need the watchdog
                    _log.exception("watchdog could not look at call %s", call.engine_id)

    def _look_at(self, call: LiveCall) -> None:
        now, partial = time.monotonic(), call.answer.started
        limit = self._limits.between_s if call.started else self._limits.first_s
        if call.answer.ended:
            self.forget(call)
        elif now > call.deadline_s + DEADLINE_GRACE_S:
            self._abandon(call, DeadlineExceeded("the request's deadline passed", partial=partial))
        elif now - call.heard_s > limit:
            what = "stopped answering" if call.started else "gave no first token"
            error = EngineStalled(f"the engine {what} for {limit:g} s; retry later", partial=partial)
            self._abandon(call, error)
        elif not call.stopping and call.answer.is_cancelled():
            self.stop_engine(call)

    def _abandon(self, call: LiveCall, error: DeadlineExceeded | EngineStalled) -> None:
        _log.warning("call %s abandoned: %s", call.engine_id, error.message)
        call.answer.abandon(error)
        self.stop_engine(call)
        self.forget(call)
