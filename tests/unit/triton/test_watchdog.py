"""The watchdog: deadlines, silent engines and callers that went away, none of which ends by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from naiad.contract.errors import DeadlineExceeded, EngineStalled, parse_error
from naiad.telemetry import Recorder
from naiad.triton import watchdog as module
from naiad.triton.answers import Answer
from naiad.triton.responses import ResponseStream
from naiad.triton.watchdog import LiveCall, SilenceLimits, Watchdog
from tests.harness.fake_triton import FakeServer, IncomingRequest
from tests.unit.triton.conftest import LogLines

NEVER_S = 1000.0


class Stops:
    """Records stop requests; can be told to fail."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.failing = False
        self._came = threading.Condition()

    def __call__(self, engine_id: str) -> None:
        with self._came:
            self.ids.append(engine_id)
            self._came.notify_all()
        if self.failing:
            raise RuntimeError("no such model")

    def wait_for(self, count: int) -> list[str]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.ids) >= count, 10)
        return self.ids


@pytest.fixture
def stops() -> Stops:
    return Stops()


@pytest.fixture
def watching(stops: Stops, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watchdog]]:
    monkeypatch.setattr(module, "DEADLINE_GRACE_S", 0.01)
    made: list[Watchdog] = []

    def start(first_s: float = NEVER_S, between_s: float = NEVER_S) -> Watchdog:
        made.append(Watchdog(SilenceLimits(first_s, between_s), 0.002, stops))
        return made[-1]

    yield start
    for each in made:
        each.close()


def live(
    triton: FakeServer, *, deadline_s: float = NEVER_S, name: str = "a", **options: Any
) -> tuple[LiveCall, IncomingRequest]:
    request = triton.request({}, **options)
    answer = Answer(ResponseStream(request), 1, Recorder(), decoupled=True)
    return LiveCall(name, answer, time.monotonic() + deadline_s), request


def end(request: IncomingRequest, call: LiveCall) -> None:
    call.answer.send(0, {"n": np.zeros((1, 1), dtype=np.int32)}, last=True)


def failure(request: IncomingRequest) -> Any:
    *_, last = request.wait_ended()
    assert last.error is not None
    return parse_error(last.error)


def test_d12_no_first_token_and_no_further_token_have_limits_and_words_of_their_own(
    triton: FakeServer, watching: Callable[..., Watchdog], stops: Stops
) -> None:
    dog = watching(first_s=0.02, between_s=NEVER_S)
    silent, silent_request = live(triton, name="silent")
    talking, talking_request = live(triton, name="talking")
    talking.heard()
    dog.watch(talking)
    dog.watch(silent)
    error = failure(silent_request)
    assert isinstance(error, EngineStalled)
    assert error.message == "the engine gave no first token for 0.02 s; retry later"
    assert not error.partial
    assert stops.wait_for(1) == ["silent"]
    assert not talking_request.ended
    end(talking_request, talking)


def test_b01_a_stream_that_falls_silent_ends_as_a_partial_answer(
    triton: FakeServer, watching: Callable[..., Watchdog], stops: Stops
) -> None:
    dog = watching(first_s=NEVER_S, between_s=0.02)
    call, request = live(triton)
    call.answer.send(0, {"n": np.zeros((1, 1), dtype=np.int32)}, last=False)
    call.heard()
    dog.watch(call)
    error = failure(request)
    assert isinstance(error, EngineStalled)
    assert error.message == "the engine stopped answering for 0.02 s; retry later"
    assert error.partial
    assert stops.wait_for(1) == ["a"]


def test_an_answer_of_which_nothing_was_delivered_is_not_partial_though_the_engine_spoke(
    triton: FakeServer, watching: Callable[..., Watchdog]
) -> None:
    dog = watching(between_s=0.02)
    call, request = live(triton)
    call.heard()
    dog.watch(call)
    assert not failure(request).partial


def test_a_call_that_keeps_talking_lives(triton: FakeServer, watching: Callable[..., Watchdog]) -> None:
    dog = watching(first_s=0.5, between_s=0.5)
    call, request = live(triton)
    dog.watch(call)
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        call.heard()
    assert not request.ended
    end(request, call)


def test_the_deadline_ends_a_call_that_the_engine_does_not(
    triton: FakeServer, watching: Callable[..., Watchdog], stops: Stops
) -> None:
    dog = watching()
    call, request = live(triton, deadline_s=0.01)
    dog.watch(call)
    error = failure(request)
    assert isinstance(error, DeadlineExceeded)
    assert error.message == "the request's deadline passed"
    assert stops.wait_for(1) == ["a"]


def test_d03_a_cancel_reaches_the_engine_once_and_leaves_the_end_to_it(
    triton: FakeServer, watching: Callable[..., Watchdog], stops: Stops
) -> None:
    dog = watching()
    call, request = live(triton)
    dog.watch(call)
    request.cancel()
    assert stops.wait_for(1) == ["a"]
    dog.stop_engine(call)
    second, second_request = live(triton, name="b")
    second_request.cancel()
    dog.watch(second)
    assert stops.wait_for(2) == ["a", "b"]
    assert not request.ended
    end(request, call)
    end(second_request, second)


def test_d05_a_cancel_of_a_call_that_ended_does_nothing(
    triton: FakeServer, watching: Callable[..., Watchdog], stops: Stops
) -> None:
    dog = watching()
    ended, ended_request = live(triton, name="ended")
    dog.watch(ended)
    end(ended_request, ended)
    ended_request.cancel()
    other, other_request = live(triton, name="other")
    dog.watch(other)
    other_request.cancel()
    assert stops.wait_for(1) == ["other"]
    end(other_request, other)


def test_a_forgotten_call_is_left_alone(
    triton: FakeServer, watching: Callable[..., Watchdog], stops: Stops
) -> None:
    dog = watching(first_s=0.01)
    gone, gone_request = live(triton, name="gone")
    dog.watch(gone)
    dog.forget(gone)
    dog.forget(gone)
    kept, kept_request = live(triton, name="kept")
    dog.watch(kept)
    failure(kept_request)
    assert not gone_request.ended
    end(gone_request, gone)


def test_the_watchdog_survives_what_its_calls_do_to_it(
    triton: FakeServer, watching: Callable[..., Watchdog], log: LogLines, stops: Stops
) -> None:
    class Broken:
        ended = started = False

        def is_cancelled(self) -> bool:
            raise RuntimeError("the stub is gone")

    dog = watching(between_s=0.02)
    broken: Any = Broken()
    dog.watch(LiveCall("broken", broken, time.monotonic() + NEVER_S))
    call, request = live(triton)
    call.heard()
    dog.watch(call)
    assert isinstance(failure(request), EngineStalled)
    assert log.about("watchdog could not look at call broken")


def test_a_stop_request_that_fails_is_logged_and_forgotten(
    triton: FakeServer, watching: Callable[..., Watchdog], log: LogLines, stops: Stops
) -> None:
    stops.failing = True
    dog = watching()
    for name in ("a", "b"):
        call, request = live(triton, name=name)
        dog.watch(call)
        request.cancel()
        stops.wait_for(1 if name == "a" else 2)
        end(request, call)
    dog.close()
    assert log.about("stop request for a failed")


def test_d14_durations_come_from_the_monotonic_clock(
    triton: FakeServer, watching: Callable[..., Watchdog], monkeypatch: pytest.MonkeyPatch, stops: Stops
) -> None:
    dog = watching(first_s=60, between_s=60)
    call, request = live(triton, deadline_s=60)
    dog.watch(call)
    real = time.time
    for jump_s in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real() + jump_s)
        other, other_request = live(triton, name=f"cancelled {jump_s}")
        other_request.cancel()
        dog.watch(other)
        stops.wait_for(1 if jump_s > 0 else 2)  # so it has looked around since the jump
        end(other_request, other)
    assert not request.ended
    end(request, call)


def test_closing_ends_the_thread(watching: Callable[..., Watchdog]) -> None:
    dog = watching()
    before = {thread.name for thread in threading.enumerate()}
    assert "naiad-watchdog" in before
    dog.close()
    assert "naiad-watchdog" not in {thread.name for thread in threading.enumerate()}
