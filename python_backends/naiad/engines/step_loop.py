"""The thread that turns a `Stepper` into an `Engine`: admission, delivery, stops, cancels, deadlines."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from naiad.contract.errors import DeadlineExceeded, EngineUnavailable, InternalError, NaiadError, Overloaded
from naiad.contract.generation import FinishReason, GenerationRequest, TokenChunk
from naiad.engines.base import Engine, EngineLimits, EngineStats, Sink
from naiad.engines.live_request import LiveRequest
from naiad.engines.observer import EngineObserver, NullObserver
from naiad.engines.stepper import Stepper, StepResult

__all__ = ["StepLoop"]

_log = logging.getLogger(__name__)


class StepLoop(Engine):
    """Drives a stepper from one thread; see `Engine` for what callers may rely on.

    Args:
        stepper: the engine proper.
        max_waiting: requests beyond those in the batch; more are refused.
        poll_period_s: how often callers are asked whether they are still there.
        max_chunks_per_s: chunks handed to sinks, over all streams. With n streams in flight, what all of
            them have is held until n / max_chunks_per_s seconds after the last time, and goes with the first
            step that ends after that. 0: one a step. First and last chunks are never held.
        tokens_per_chunk: fewest tokens of a chunk that is neither the first nor the last.
        observer: told what the engine does, at the time it does it.
        after_turn: called after every step, and whenever sinks were called without one.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        stepper: Stepper,
        *,
        max_waiting: int,
        poll_period_s: float = 0.1,
        max_chunks_per_s: float = 0.0,
        tokens_per_chunk: int = 1,
        observer: EngineObserver | None = None,
        after_turn: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stepper = stepper
        self._limits = stepper.limits
        self._max_waiting = max_waiting
        self._poll_period_s = poll_period_s
        self._seconds_per_chunk = 1 / max_chunks_per_s if max_chunks_per_s else 0.0
        self._tokens_per_chunk = tokens_per_chunk
        self._observer = observer or NullObserver()
        self._after_turn = after_turn or (lambda: None)
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[LiveRequest] = deque()
        self._live: dict[int, LiveRequest] = {}
        self._keys = itertools.count(1)
        self._closing = False
        self._failure: NaiadError | None = None
        self._next_poll_s = 0.0
        self._emitted_s = -math.inf
        self._stats = EngineStats()
        self._thread = threading.Thread(target=self._run, name="naiad-engine", daemon=True)
        self._thread.start()

    @property
    def limits(self) -> EngineLimits:
        """What the loaded model can take."""
        return self._limits

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Accept a request; see `Engine.submit` for the errors."""
        self._limits.check(request)
        self._stepper.check(request)
        live = LiveRequest(request, sink, self._clock())
        with self._changed:
            if self._closing:
                raise EngineUnavailable("the engine is shutting down")
            if self._failure is not None:
                raise self._failure
            room = self._stepper.max_sequences - len(self._live)
            if len(self._waiting) >= self._max_waiting + max(room, 0):
                raise Overloaded(f"{len(self._waiting)} requests are waiting for the engine; retry later")
            self._waiting.append(live)
            self._changed.notify()
        self._stepper.wake()

    def stop(self, request_id: str) -> None:
        """Cancel every live request of that id."""
        with self._changed:
            for live in (*self._waiting, *self._live.values()):
                if live.request.request_id == request_id:
                    live.stopped = True
            self._next_poll_s = 0.0
            self._changed.notify()
        self._stepper.wake()

    def stats(self) -> EngineStats:
        """Return the counts of the last step, with the queue as it is now."""
        with self._changed:
            waiting, live = len(self._waiting), len(self._live)
            return replace(self._stats, active=waiting + live, scheduled=live, waiting=waiting)

    def close(self) -> None:
        """Cancel what is live and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._stepper.wake()
        self._thread.join(timeout=30)

    # Everything below runs on the engine's thread.

    def _run(self) -> None:
        while self._wait_for_work():
            self._turn()
            self._after_turn()
        self._end_all(EngineUnavailable("the engine is shutting down"))
        self._after_turn()
        self._stepper.close()

    def _turn(self) -> None:
        now = self._clock()
        if now >= self._next_poll_s:
            self._next_poll_s = now + self._poll_period_s
            self._end_unwanted(now)
        self._admit()
        if not self._live:
            return
        try:
            results = self._stepper.step()
        except Exception:  # noqa: BLE001 - the engine's libraries raise anything
            self._recover()
            return
        for result in results:
            self._deliver(result)
        self._emit_due()
        if self._next_poll_s <= self._clock():
            self._snapshot()

    def _wait_for_work(self) -> bool:
        with self._changed:
            if not self._waiting and not self._live and self._failure is None:
                self._stats = self._stepper.stats()
            while not self._closing and not self._waiting and not self._live:
                self._changed.wait()
            return not self._closing

    def _snapshot(self) -> None:
        stats = self._stepper.stats()
        with self._changed:
            self._stats = stats

    def _admit(self) -> None:
        while len(self._live) < self._stepper.max_sequences:
            with self._changed:
                if not self._waiting:
                    return
                live = self._waiting.popleft()
                key = next(self._keys)
                self._live[key] = live
            try:
                self._stepper.add(key, live.request)
            except NaiadError as error:
                self._fail(key, error)
            except Exception:  # noqa: BLE001 - as above; the stepper promises to stay usable
                incident = InternalError()
                _log.exception("engine refused a request, incident %s", incident.incident)
                self._fail(key, incident)
            else:
                live.scheduled_s = self._clock()
                self._observer.scheduled(live.scheduled_s - live.submitted_s)

    def _deliver(self, result: StepResult) -> None:
        live = self._live.get(result.key)
        if live is None:
            return
        if result.error is not None:
            self._fail(result.key, result.error)
            return
        taken, reason = live.cut(result)
        if not taken and reason is None:
            return
        ids = [result.ids[position] for position in taken]
        log_probs = [result.log_probs[position] for position in taken] if result.log_probs else []
        now = self._clock()
        if ids:
            if live.delivered_s is None:
                live.first_token_s = now
                self._observer.first_token(now - live.submitted_s)
            else:
                self._observer.next_tokens(now - live.delivered_s, len(ids))
            live.delivered_s = now
        if reason is not None:
            self._forget(result.key, abort=result.finish_reason is None)
            self._observer.finished(len(live.request.prompt_ids), len(live.ids), reason)
        live.hold(TokenChunk(ids, log_probs, reason, live.times() if reason else None))
        if reason is not None:
            self._emit_held(live)

    def _emit_due(self) -> None:
        """Emit first tokens, and when a period is over what all streams have held: a burst costs less."""
        now = self._clock()
        period_s = self._seconds_per_chunk * sum(live.request.streaming for live in self._live.values())
        due = now - self._emitted_s >= period_s
        for key, live in list(self._live.items()):
            if live.held is None or (
                live.begun and not (due and len(live.held.ids) >= self._tokens_per_chunk)
            ):
                continue
            live.begun = True
            if due:
                self._emitted_s = now
            self._emit_held(live, key=key)

    def _end_unwanted(self, now: float) -> None:
        """Cancel what callers gave up on, and what ran out of time, waiting or running."""
        with self._changed:
            waiting = list(self._waiting)
        for live in waiting:
            if self._unwanted(live, now):
                with self._changed:
                    self._waiting.remove(live)
                self._end(live, now)
        for key, live in list(self._live.items()):
            if self._unwanted(live, now):
                self._forget(key, abort=True)
                self._end(live, now)

    def _unwanted(self, live: LiveRequest, now: float) -> bool:
        deadline = live.request.deadline_s
        if deadline is not None and now >= deadline:
            return True
        if not live.stopped:
            try:
                live.stopped = live.sink.is_cancelled()
            except Exception:  # noqa: BLE001 - one caller's trouble must not end the engine's thread
                _log.exception("a sink failed to say whether it is cancelled; taken as cancelled")
                live.stopped = True
        return live.stopped

    def _end(self, live: LiveRequest, now: float) -> None:
        prompt_tokens, tokens = len(live.request.prompt_ids), len(live.ids)
        if live.stopped:
            self._observer.finished(prompt_tokens, tokens, FinishReason.CANCELLED)
            live.hold(TokenChunk([], finish_reason=FinishReason.CANCELLED, times=live.times()))
            self._emit_held(live)
        else:
            self._observer.finished(prompt_tokens, tokens, FinishReason.TIMEOUT)
            self._emit_held(live)
            _tell_end(live.sink, DeadlineExceeded("the request's deadline passed", partial=tokens > 0))

    def _recover(self) -> None:
        """A failed step loses all sequences: end them with a retryable error and build the engine anew."""
        _log.exception("engine step failed; rebuilding the engine")
        self._end_all(EngineUnavailable("the engine failed and is being rebuilt; retry"), waiting=False)
        try:
            self._stepper.rebuild()
        except Exception:  # noqa: BLE001 - whatever it was, this engine is finished
            _log.exception("the engine cannot be rebuilt")
            with self._changed:
                self._failure = EngineUnavailable("the engine failed and could not be rebuilt")
            self._end_all(EngineUnavailable("the engine failed and could not be rebuilt"))

    def _end_all(self, error: NaiadError, *, waiting: bool = True) -> None:
        for key in list(self._live):
            self._fail(key, type(error)(error.message, partial=bool(self._live[key].ids)), abort=waiting)
        while waiting:
            with self._changed:
                if not self._waiting:
                    return
                live = self._waiting.popleft()
            _tell_end(live.sink, error)

    def _fail(self, key: int, error: NaiadError, *, abort: bool = False) -> None:
        live = self._live[key]
        self._forget(key, abort=abort)
        self._emit_held(live)
        _tell_end(live.sink, error)

    def _forget(self, key: int, *, abort: bool) -> None:
        with self._changed:
            del self._live[key]
        if abort:
            try:
                self._stepper.abort(key)
            except Exception:  # noqa: BLE001 - whether the engine survived shows in its next step
                _log.exception("the engine could not abort a sequence")

    def _emit_held(self, live: LiveRequest, *, key: int | None = None) -> None:
        """Hand over what is held; a sink that cannot take it ends its own request and no other."""
        chunk, live.held = live.held, None
        if chunk is None:
            return
        try:
            live.sink.emit(chunk)
        except Exception:  # noqa: BLE001 - as above
            incident = InternalError(partial=live.delivered_s is not None)
            _log.exception("a chunk could not be delivered, incident %s", incident.incident)
            if key in self._live:
                self._forget(key, abort=True)
            _tell_end(live.sink, incident)


def _tell_end(sink: Sink, error: NaiadError) -> None:
    try:
        sink.fail(error)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("a request's error could not be delivered")
