"""The client of llama.cpp's server, against a server of bytes: what is counted, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from naiad_perf.errors import PerfError
from naiad_perf.peers.completion_stream import ask, events, is_healthy
from naiad_perf.workload.load import Prompt

PROMPT = Prompt("once upon a time", (1, 2, 3, 4), 5)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(content: str, predicted: int, *, stop: bool = False) -> bytes:
    told = {"content": content, "tokens_predicted": predicted, "tokens_evaluated": 4, "stop": stop}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def chunked(parts: Sequence[bytes], *, ended: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return body + (b"0\r\n\r\n" if ended else b"")


@asynccontextmanager
async def server(reply: bytes) -> AsyncIterator[tuple[str, int, list[bytes]]]:
    """Answers every connection with `reply` and hangs up; notes what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
        )
        asked.append(head + await reader.readexactly(length))
        writer.write(reply)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        host, port = listening.sockets[0].getsockname()[:2]
        yield host, port, asked


async def test_tokens_are_those_that_the_server_counts_not_its_events() -> None:
    parts = [event("On", 1), event("", 1), event(" the é", 4), event("!", 5), event("", 5, stop=True)]
    async with server(HEAD + chunked(parts)) as (host, port, asked):
        came = await ask(host, port, PROMPT)
    assert came.response_tokens == [1, 3, 1]
    assert len(came.response_ns) == 3
    assert came.text == "On the é!"
    assert came.input_tokens == 4
    assert came.sent_ns <= came.response_ns[0] <= came.response_ns[-1] <= came.ended_ns
    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /completion HTTP/1.1\r\n")
    wanted = json.loads(body)
    assert wanted["prompt"] == PROMPT.text
    assert (wanted["n_predict"], wanted["ignore_eos"], wanted["cache_prompt"]) == (5, True, False)
    assert (wanted["temperature"], wanted["stream"]) == (0, True)


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_events_may_be_cut_anywhere(size: int) -> None:
    whole = b": alive\n\n" + event("a", 1) + event("é", 2) + b"data: [DONE]\n\n"
    reader = asyncio.StreamReader()
    reader.feed_data(chunked([whole[start : start + size] for start in range(0, len(whole), size)]))
    reader.feed_eof()
    assert [told["content"] async for told in events(reader)] == ["a", "é"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b'HTTP/1.1 503 Unavailable\r\n\r\n{"error": "Loading model"}', "503 Unavailable.*Loading model"),
        (HEAD + chunked([event("a", 1)], ended=False), "broke off"),
        (HEAD + chunked([event("a", 1)]), "without its last event"),
        (HEAD + chunked([b'data: {"error": "no slot"}\n\n']), "broke off"),
        (HEAD + b"not chunked\r\n", "broke off"),
        (b"", "broke off"),
    ],
)
async def test_half_an_answer_is_none(reply: bytes, message: str) -> None:
    async with server(reply) as (host, port, _):
        with pytest.raises(PerfError, match=message):
            await ask(host, port, PROMPT)


@pytest.mark.parametrize(
    ("reply", "healthy"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"status":"ok"}', True),
        (b"HTTP/1.1 503 Loading\r\n\r\n", False),
        (b"", False),
    ],
)
async def test_healthy_is_200(reply: bytes, healthy: bool) -> None:
    async with server(reply) as (host, port, asked):
        assert await is_healthy(host, port) is healthy
    assert asked[0].startswith(b"GET /health ")


async def test_nobody_listening_is_not_healthy_and_no_answer() -> None:
    async with server(b"") as (host, port, _):
        pass
    assert not await is_healthy(host, port)
    with pytest.raises(PerfError, match="broke off"):
        await ask(host, port, PROMPT)
