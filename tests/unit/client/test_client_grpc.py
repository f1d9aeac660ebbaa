"""Both clients against a real gRPC server in this process: what only a wire can show."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from naiad_client import (
    AsyncClient,
    Client,
    Completion,
    ConnectFailed,
    EngineUnavailable,
    FirstTokenTimeout,
    GenerationRequest,
    IdleTimeout,
    IncompleteStream,
    ModelNotFound,
    NaiadError,
    Overloaded,
    PromptTooLong,
    Retries,
    Timeouts,
    TotalTimeout,
)
from tests.unit.client.triton_server import ScriptedTriton, eventually, running

QUICK = Retries(attempts=3, backoff_s=0.01)
KINDS = ["blocking", "asyncio"]


@pytest.fixture
def triton() -> Iterator[ScriptedTriton]:
    with running() as server:
        yield server


def generate(kind: str, address: str, prompt: str, **how: Any) -> Completion:
    how = {"retries": QUICK, **how}
    if kind == "blocking":
        with Client(address, **how) as client:
            return client.generate(prompt)

    async def once() -> Completion:
        async with AsyncClient(address, **how) as client:
            return await client.generate(prompt)

    return asyncio.run(once())


@pytest.mark.parametrize("kind", KINDS)
def test_text_counts_and_times_arrive(kind: str, triton: ScriptedTriton) -> None:
    answer = generate(kind, triton.address, "words")
    assert answer.text == "Héllo 🌍 世界"
    assert answer.finish_reason == "stop"
    assert (answer.usage.num_input_tokens, answer.usage.num_output_tokens) == (5, 5)
    assert answer.timings.ttft_s is not None
    assert 0 < answer.timings.ttft_s <= answer.timings.total_s < 5
    assert eventually(lambda: triton.visits[0].returned), "the server ended the stream, not a cancel"


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_sees_deadline_and_never_the_header_that_crashes_it(
    kind: str, triton: ScriptedTriton
) -> None:
    generate(kind, triton.address, "words", timeouts=Timeouts(total_s=7))
    generate(kind, triton.address, "words")
    limited, free = triton.visits
    assert limited.time_left_s == pytest.approx(7, abs=1)
    assert limited.request.parameters["timeout"].int64_param == pytest.approx(7_000_000, abs=100_000)
    assert free.time_left_s is None or free.time_left_s > 1e6
    assert all("triton_grpc_error" not in visit.metadata for visit in triton.visits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("prompt", "error", "partial"),
    [
        ("truncated", IncompleteStream, True),
        ("refused", PromptTooLong, False),
        ("full late", Overloaded, True),
        ("dies", EngineUnavailable, True),
        ("unknown model", ModelNotFound, False),
    ],
)
def test_failures_are_typed(
    kind: str, prompt: str, error: type[NaiadError], partial: bool, triton: ScriptedTriton
) -> None:
    with pytest.raises(NaiadError) as raised:
        generate(kind, triton.address, prompt)
    assert type(raised.value) is error
    assert raised.value.partial is partial
    assert len(triton.visits) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("prompt", "timeouts", "error"),
    [
        ("no token", Timeouts(first_token_s=0.2), FirstTokenTimeout),
        ("one token", Timeouts(between_tokens_s=0.2), IdleTimeout),
        ("slow", Timeouts(total_s=0.3), TotalTimeout),
        ("no token", Timeouts(total_s=0.2), TotalTimeout),
    ],
)
def test_each_limit_ends_the_call_and_the_server_sees_it(
    kind: str, prompt: str, timeouts: Timeouts, error: type[NaiadError], triton: ScriptedTriton
) -> None:
    begun = time.monotonic()
    with pytest.raises(NaiadError) as raised:
        generate(kind, triton.address, prompt, timeouts=timeouts)
    assert type(raised.value) is error
    assert time.monotonic() - begun < 3
    assert raised.value.partial is (prompt != "no token")
    assert eventually(lambda: triton.visits[0].cancelled)
    assert len(triton.visits) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_queue_is_tried_again_before_the_first_token(kind: str, triton: ScriptedTriton) -> None:
    assert generate(kind, triton.address, "full twice").text == "Héllo 🌍 世界"
    assert len(triton.visits) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_where_nobody_listens_fails_at_once(kind: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=address):
            generate(kind, address, "words")


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_that_accepts_but_never_speaks_fails_within_the_limit(kind: str) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        begun = time.monotonic()
        with pytest.raises(ConnectFailed):
            generate(
                kind,
                f"127.0.0.1:{mute.getsockname()[1]}",
                "words",
                timeouts=Timeouts(connect_s=0.3),
                retries=Retries(attempts=1),
            )
        assert 0.25 < time.monotonic() - begun < 3


def test_cancel_from_another_thread_returns_at_once_and_the_server_sees_it(triton: ScriptedTriton) -> None:
    with Client(triton.address) as client, client.stream("one token") as stream:
        assert next(stream).text == "one"
        took: list[float] = []

        def cancel() -> None:
            begun = time.monotonic()
            stream.cancel()
            took.append(time.monotonic() - begun)

        timer = threading.Timer(0.1, cancel)
        timer.start()
        begun = time.monotonic()
        assert list(stream) == []
        timer.join()
        assert time.monotonic() - begun < 2
        assert took[0] < 0.5
        assert stream.completion.finish_reason == "cancelled"
        assert eventually(lambda: triton.visits[0].cancelled)


async def test_cancelling_the_stream_wakes_the_task_that_reads(triton: ScriptedTriton) -> None:
    async with AsyncClient(triton.address) as client, client.stream("one token") as stream:
        assert (await anext(stream)).text == "one"
        asyncio.get_running_loop().call_later(0.1, stream.cancel)
        assert [chunk async for chunk in stream] == []
        assert stream.completion.finish_reason == "cancelled"
    assert await asyncio.to_thread(eventually, lambda: triton.visits[0].cancelled)


async def test_cancelling_the_task_cancels_the_request(triton: ScriptedTriton) -> None:
    async with AsyncClient(triton.address) as client:
        task = asyncio.create_task(client.generate("no token"))
        assert await asyncio.to_thread(eventually, lambda: bool(triton.visits))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(eventually, lambda: triton.visits[0].cancelled)
        assert (await client.generate("words")).finish_reason == "stop", "the client still works"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks do not tell before Python 3.11")
async def test_a_cancelled_task_stays_cancelled_when_its_stream_is_cancelled_too(
    triton: ScriptedTriton,
) -> None:
    async with AsyncClient(triton.address) as client:
        stream = client.stream("one token")
        await anext(stream)
        task = asyncio.create_task(stream.result())
        await asyncio.sleep(0)
        stream.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_leaving_the_context_early_reaches_the_server(triton: ScriptedTriton) -> None:
    with Client(triton.address) as client:
        with client.stream("slow") as stream:
            next(stream)
        assert eventually(lambda: triton.visits[0].cancelled)


def test_one_cancelled_stream_leaves_the_others_on_the_connection_alone(triton: ScriptedTriton) -> None:
    with Client(triton.address) as client, client.stream("slow") as doomed, client.stream("slow") as other:
        next(doomed)
        next(other)
        doomed.cancel()
        assert eventually(lambda: triton.visits[0].cancelled or triton.visits[1].cancelled)
        assert [next(other).text for _ in range(3)] == ["x"] * 3


def test_threads_share_a_client_and_no_answer_crosses(triton: ScriptedTriton) -> None:
    def one(number: int) -> bool:
        answer = client.generate("numbered", request_id=f"r{number}")
        return answer.text.split() == [f"r{number}:{piece}" for piece in range(50)]

    with Client(triton.address) as client, ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(48)))


async def test_tasks_share_a_client_and_no_answer_crosses(triton: ScriptedTriton) -> None:
    async with AsyncClient(triton.address) as client:
        answers = await asyncio.gather(
            *(client.generate("numbered", request_id=f"r{number}") for number in range(48))
        )
    for number, answer in enumerate(answers):
        assert answer.text.split() == [f"r{number}:{piece}" for piece in range(50)]


def test_no_thread_stays_behind(triton: ScriptedTriton) -> None:
    def readers() -> int:
        return sum(thread.name == "naiad-client-stream" for thread in threading.enumerate())

    with Client(triton.address) as client:
        client.generate("words")
        with client.stream("slow") as stream:
            next(stream)
        with pytest.raises(FirstTokenTimeout):
            client.generate("no token", timeouts=Timeouts(first_token_s=0.05))
        assert eventually(lambda: readers() == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_reader_is_not_a_silent_server(kind: str, triton: ScriptedTriton) -> None:
    limits = Timeouts(first_token_s=0.2, between_tokens_s=0.2)
    if kind == "blocking":
        with Client(triton.address, timeouts=limits) as client, client.stream("words") as stream:
            for _ in stream:
                time.sleep(0.25)
            assert stream.completion.finish_reason == "stop"
        return

    async def read_slowly() -> None:
        async with AsyncClient(triton.address, timeouts=limits) as client, client.stream("words") as stream:
            await asyncio.sleep(0.25)
            async for _ in stream:
                await asyncio.sleep(0.25)
            assert stream.completion.finish_reason == "stop"

    asyncio.run(read_slowly())


def test_health_proves_a_generation(triton: ScriptedTriton) -> None:
    with Client(triton.address, retries=Retries(attempts=1)) as client:
        well = client.health()
        assert well.healthy
        assert well.canary_s is not None
        canary = triton.visits[0].request
        assert [
            raw for tensor, raw in zip(canary.inputs, canary.raw_input_contents, strict=True)
            if tensor.name == "max_tokens"
        ] == [b"\x01\0\0\0"]  # fmt: skip
        triton.behaviours["Hi"] = triton.behaviours["refused"]
        ill = client.health()
        assert (ill.live, ill.ready, ill.healthy) == (True, True, False)
        assert isinstance(ill.problem, PromptTooLong)
        triton.ready = False
        assert (client.health().live, client.health().ready, client.health().healthy) == (True, False, False)
        assert len(triton.visits) == 2, "a server that is not ready gets no canary"


async def test_health_and_models_for_asyncio(triton: ScriptedTriton) -> None:
    async with AsyncClient(triton.address) as client:
        assert (await client.health()).healthy
        models = await client.models()
    assert [(model.name, model.version, model.ready) for model in models] == [
        ("broken", "2", False), ("idle", "", False), ("tensorrt_llm_bls", "1", True),
    ]  # fmt: skip


def test_health_of_no_server_is_an_answer_not_an_exception() -> None:
    with Client("127.0.0.1:1", retries=Retries(attempts=1)) as client:
        health = client.health()
    assert not health.live
    assert isinstance(health.problem, ConnectFailed)


def test_a_closed_client_says_so(triton: ScriptedTriton) -> None:
    client = Client(triton.address)
    client.close()
    with pytest.raises(NaiadError, match="closed"):
        client.generate("words")
    with pytest.raises(NaiadError, match="closed"):
        client.models()


async def test_a_closed_asyncio_client_says_so(triton: ScriptedTriton) -> None:
    client = AsyncClient(triton.address)
    await client.close()
    with pytest.raises(NaiadError, match="closed"):
        await client.generate(GenerationRequest.ask("words"))


def test_closing_the_client_ends_its_streams(triton: ScriptedTriton) -> None:
    client = Client(triton.address)
    stream = client.stream("one token")
    next(stream)
    client.close()
    with pytest.raises(NaiadError):
        next(stream)
    assert eventually(lambda: triton.visits[0].cancelled)
