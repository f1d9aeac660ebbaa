"""The course of a call against scripts, the same for the blocking and the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from naiad_client import (
    AsyncClient,
    Cancelled,
    Chunk,
    Client,
    Completion,
    EngineUnavailable,
    FirstTokenTimeout,
    GenerationRequest,
    IdleTimeout,
    IncompleteStream,
    InvalidArgument,
    NaiadError,
    Overloaded,
    Retries,
    Timeouts,
    TotalTimeout,
)
from tests.unit.client.scripted import (
    END,
    AsyncScriptedTransport,
    ScriptedTransport,
    Silence,
    Step,
    delta,
    failure,
    final,
)

QUICK = Retries(attempts=3, backoff_s=0)


@dataclass
class Outcome:
    """What a caller saw, and what the transport saw."""

    chunks: list[Chunk]
    error: NaiadError | None
    completion: Completion | None
    text: str
    transport: Any


Play = Callable[..., Outcome]
Act = Callable[[Any, Chunk], None]


def _play(*scripts: Sequence[Step], act: Act | None = None, **how: Any) -> Outcome:
    transport = ScriptedTransport(scripts)
    client = Client(transport=transport, clock=transport.clock, **{"retries": QUICK, **how})
    seen = Outcome([], None, None, "", transport)
    with client.stream("hi") as stream:
        try:
            for chunk in stream:
                seen.chunks.append(chunk)
                if act is not None:
                    act(stream, chunk)
            seen.completion = stream.completion
        except NaiadError as error:
            seen.error = error
            with pytest.raises(type(error)):
                _ = stream.completion
            assert list(stream) == [], "nothing comes after an error"
    seen.text = stream.text
    return seen


async def _play_async(*scripts: Sequence[Step], act: Act | None = None, **how: Any) -> Outcome:
    transport = AsyncScriptedTransport(scripts)
    client = AsyncClient(transport=transport, clock=transport.clock, **{"retries": QUICK, **how})
    seen = Outcome([], None, None, "", transport)
    async with client.stream("hi") as stream:
        try:
            async for chunk in stream:
                seen.chunks.append(chunk)
                if act is not None:
                    act(stream, chunk)
            seen.completion = stream.completion
        except NaiadError as error:
            seen.error = error
            with pytest.raises(type(error)):
                _ = stream.completion
            assert [chunk async for chunk in stream] == [], "nothing comes after an error"
    seen.text = stream.text
    return seen


@pytest.fixture(params=["blocking", "asyncio"])
def play(request: pytest.FixtureRequest) -> Play:
    if request.param == "blocking":
        return _play
    return lambda *scripts, **how: asyncio.run(_play_async(*scripts, **how))


def test_an_answer_arrives_in_order_and_completes(play: Play) -> None:
    seen = play(
        [Silence(0.5), delta("Hal"), Silence(0.25), delta("lo", finish="stop"), Silence(0.25), final(), END]
    )
    assert [chunk.text for chunk in seen.chunks] == ["Hal", "lo"]
    assert [chunk.index for chunk in seen.chunks] == [0, 1]
    assert seen.completion is not None
    assert (seen.completion.text, seen.completion.finish_reason) == ("Hallo", "stop")
    assert seen.completion.timings.ttft_s == pytest.approx(0.5)
    assert seen.completion.timings.mean_itl_s == pytest.approx(0.25)
    assert seen.completion.timings.total_s == pytest.approx(1.0)
    assert not seen.transport.wires[0].cancelled


def test_the_final_flag_on_the_last_data_response_ends_it_too(play: Play) -> None:
    seen = play([delta("a"), delta("b", finish="length", final=True), END])
    assert seen.completion is not None
    assert (seen.completion.text, seen.completion.finish_reason) == ("ab", "length")


def test_an_answer_without_any_data_is_complete(play: Play) -> None:
    seen = play([final(), END])
    assert seen.completion is not None
    assert seen.completion.text == ""
    assert seen.chunks == []


def test_nothing_after_the_final_flag_reaches_the_caller(play: Play) -> None:
    seen = play([delta("a"), final(), delta("ghost")])
    assert seen.text == "a"
    assert [chunk.text for chunk in seen.chunks] == ["a"]
    assert seen.transport.wires[0].cancelled


def test_a_server_that_never_ends_the_stream_after_the_final_flag_is_left(play: Play) -> None:
    seen = play([delta("a"), final(), Silence(100)])
    assert seen.completion is not None
    assert seen.transport.wires[0].cancelled
    assert seen.transport.clock.now_s < 1010


@pytest.mark.parametrize("after", [0, 2])
def test_a_stream_cut_before_its_final_flag_is_not_a_success(play: Play, after: int) -> None:
    seen = play(*[[*([delta("x")] * after), END]] * (3 if after == 0 else 1))
    assert type(seen.error) is IncompleteStream
    assert seen.error.partial is (after > 0)
    assert seen.text == "x" * after


def test_an_error_in_the_stream_is_typed_and_says_whether_it_was_partial(play: Play) -> None:
    early = play([failure("[INVALID_ARGUMENT] top_k must not be negative")])
    assert type(early.error) is InvalidArgument
    assert early.error.message == "top_k must not be negative"
    assert not early.error.partial
    late = play([delta("x"), failure("Stub process 'a' is not healthy.")])
    assert type(late.error) is EngineUnavailable
    assert late.error.partial
    assert late.transport.wires[0].cancelled


def test_no_first_token_in_time(play: Play) -> None:
    seen = play([Silence(99), delta("late")], timeouts=Timeouts(first_token_s=2))
    assert type(seen.error) is FirstTokenTimeout
    assert not seen.error.partial
    assert seen.transport.clock.now_s == pytest.approx(1002.0)
    assert seen.transport.wires[0].cancelled
    assert len(seen.transport.requests) == 1, "the limit is for all attempts together"


def test_an_answer_that_stops_in_the_middle(play: Play) -> None:
    seen = play(
        [Silence(5), delta("x"), Silence(2.9), delta("y"), Silence(3.1), delta("late")],
        timeouts=Timeouts(first_token_s=6, between_tokens_s=3, total_s=10.5),
    )
    assert type(seen.error) is TotalTimeout, "0.1 s before the idle limit"
    seen = play(
        [Silence(5), delta("x"), Silence(2.9), delta("y"), Silence(3.1), delta("late")],
        timeouts=Timeouts(first_token_s=6, between_tokens_s=3, total_s=11.5),
    )
    assert type(seen.error) is IdleTimeout
    assert seen.error.partial
    assert seen.text == "xy"


def test_an_answer_that_takes_too_long_in_all(play: Play) -> None:
    seen = play([delta("x"), Silence(1), delta("y"), Silence(9), final()], timeouts=Timeouts(total_s=3))
    assert type(seen.error) is TotalTimeout
    assert seen.error.partial
    assert seen.transport.deadlines == [3]
    assert seen.transport.requests[0].parameters["timeout"].int64_param == 3_000_000


def test_no_limits_means_no_limits(play: Play) -> None:
    endless = Timeouts(first_token_s=None, between_tokens_s=None)
    seen = play([Silence(1e6), delta("x"), Silence(1e6), final(), END], timeouts=endless)
    assert seen.completion is not None
    assert seen.transport.deadlines == [None]


def test_a_retryable_error_before_the_first_token_is_retried(play: Play) -> None:
    full = failure("[QUEUE_FULL] full")
    seen = play([full], [EngineUnavailable("gone")], [delta("x"), final(), END])
    assert seen.completion is not None
    assert seen.completion.text == "x"
    ids = [request.id for request in seen.transport.requests]
    assert ids == [ids[0], ids[0] + ".2", ids[0] + ".3"]
    assert [wire.cancelled for wire in seen.transport.wires] == [True, True, False]


def test_attempts_are_counted(play: Play) -> None:
    seen = play(*[[Overloaded("full")]] * 3)
    assert type(seen.error) is Overloaded
    assert len(seen.transport.requests) == 3


def test_an_error_after_the_first_token_is_never_retried(play: Play) -> None:
    seen = play([delta("x"), Overloaded("full")], [delta("again"), final(), END])
    assert type(seen.error) is Overloaded
    assert seen.error.partial
    assert len(seen.transport.requests) == 1


def test_an_empty_piece_counts_as_begun(play: Play) -> None:
    seen = play([delta("", tokens=1), Overloaded("full")], [delta("again"), final(), END])
    assert seen.error is not None
    assert len(seen.transport.requests) == 1


def test_an_error_that_would_only_come_again_is_not_retried(play: Play) -> None:
    seen = play([InvalidArgument("no")], [delta("x"), final(), END])
    assert type(seen.error) is InvalidArgument
    assert len(seen.transport.requests) == 1


def test_time_spent_on_failed_attempts_counts(play: Play) -> None:
    timeouts = Timeouts(first_token_s=9, total_s=10)
    seen = play([Silence(4), Overloaded("full")], [Silence(1), delta("x"), final(), END], timeouts=timeouts)
    assert seen.completion is not None
    assert seen.completion.timings.ttft_s == pytest.approx(5)
    assert seen.transport.deadlines == [10, pytest.approx(6)]
    assert seen.transport.requests[1].parameters["timeout"].int64_param == 6_000_000


def test_no_retry_when_its_pause_would_not_fit_into_the_limit(play: Play) -> None:
    seen = play(
        [Silence(1.5), Overloaded("full")],
        retries=Retries(backoff_s=5, jitter=0),
        timeouts=Timeouts(first_token_s=2),
    )
    assert type(seen.error) is Overloaded


def test_cancelling_ends_the_iteration_without_an_error(play: Play) -> None:
    seen = play([delta("x"), delta("y"), final()], act=lambda stream, _: stream.cancel())
    assert [chunk.text for chunk in seen.chunks] == ["x"]
    assert seen.completion is not None
    assert (seen.completion.text, seen.completion.finish_reason) == ("x", "cancelled")
    assert seen.completion.usage.num_output_tokens == 1
    assert seen.transport.wires[0].cancelled


def test_cancelling_twice_or_after_the_end_changes_nothing(play: Play) -> None:
    def twice(stream: Any, _: Chunk) -> None:
        stream.cancel()
        stream.cancel()

    assert play([delta("x"), final()], act=twice).error is None
    transport = ScriptedTransport([[delta("x", finish="stop"), final(), END]])
    with Client(transport=transport, clock=transport.clock).stream("hi") as stream:
        whole = stream.result()
        transport.clock.now_s += 50
        stream.cancel()
    assert stream.completion == whole, "not even the times"
    assert whole.finish_reason == "stop"
    assert not transport.wires[0].cancelled


def test_a_cancel_that_somebody_else_made_is_an_error(play: Play) -> None:
    seen = play([delta("x"), failure("[CANCELLED] a stop request named this request")])
    assert type(seen.error) is Cancelled
    assert seen.error.partial


def test_leaving_the_context_cancels_and_keeps_what_came() -> None:
    transport = ScriptedTransport([[delta("x"), delta("y")]])
    with Client(transport=transport, clock=transport.clock).stream("hi") as stream:
        next(stream)
    assert transport.wires[0].cancelled
    assert (stream.completion.text, stream.completion.finish_reason) == ("x", "cancelled")


def test_an_exception_in_the_callers_code_cancels() -> None:
    transport = ScriptedTransport([[delta("x"), delta("y")]])
    client = Client(transport=transport, clock=transport.clock)

    def careless() -> None:
        with client.stream("hi") as stream:
            for _ in stream:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        careless()
    assert transport.wires[0].cancelled


def test_the_completion_is_not_there_before_the_end() -> None:
    transport = ScriptedTransport([[delta("x"), final(), END]])
    with Client(transport=transport, clock=transport.clock).stream("hi") as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="not complete"):
            _ = stream.completion
        assert stream.text == "x"
        assert stream.result().text == "x"


def test_generate_returns_the_whole_and_names_the_model_and_the_request() -> None:
    transport = ScriptedTransport([[delta("a"), delta("b", finish="stop"), final(), END]])
    client = Client(transport=transport, clock=transport.clock, model="ensemble")
    answer = client.generate(GenerationRequest(text_input="raw"), request_id="mine")
    assert answer.text == "ab"
    assert transport.requests[0].model_name == "ensemble"
    assert transport.requests[0].id == "mine"


def test_nothing_is_sent_before_the_stream_is_used() -> None:
    transport = ScriptedTransport([[final(), END]])
    stream = Client(transport=transport, clock=transport.clock).stream("hi")
    assert transport.requests == []
    transport.clock.now_s += 500
    assert stream.result().timings.total_s == 0, "nor does the clock run"
