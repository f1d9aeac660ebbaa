"""llama.cpp's own completion endpoint over HTTP and server-sent events, with the least a client can do.

A small client of our own, so that the peer is charged no more for its client than we are for ours: one
request a connection, opened before the clock starts, and each event decoded once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from naiad_perf.errors import PerfError
from naiad_perf.peers.closed_loop import Arrivals
from naiad_perf.workload.load import Prompt

__all__ = ["ask", "events", "is_healthy"]

_READ_BYTES = 65_536
_END_OF_EVENT = b"\n\n"
_CONNECT_S = 10.0


async def ask(host: str, port: int, prompt: Prompt) -> Arrivals:
    """Ask `POST /completion` for exactly as many tokens as the prompt wants, the most likely ones, streamed.

    Each event says how many tokens the server has made for the request (`tokens_predicted`), which is what is
    counted; the last one says how long the prompt was (`tokens_evaluated`).

    Raises:
        PerfError: refused, broken off, or not what llama.cpp's server answers.
    """
    body = {
        "prompt": prompt.text,
        "n_predict": prompt.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "samplers": ["temperature"],
        "stream": True,
        "cache_prompt": False,
    }
    came = Arrivals()
    pieces: list[str] = []
    counted = 0
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_S)
        try:
            came.sent_ns = time.monotonic_ns()
            writer.write(_request("POST /completion", json.dumps(body).encode()))
            await _expect_ok(reader)
            async for event in events(reader):
                pieces.append(event["content"])
                came.took(event["tokens_predicted"] - counted)
                counted = max(counted, event["tokens_predicted"])
                if event["stop"]:
                    came.ended()
                    came.input_tokens = event["tokens_evaluated"]
        finally:
            writer.close()
    except (OSError, EOFError, ValueError, KeyError, asyncio.TimeoutError) as error:
        raise PerfError(f"llama.cpp's server broke off an answer: {type(error).__name__} {error}") from error
    if not came.ended_ns:
        raise PerfError("llama.cpp's server ended an answer without its last event")
    came.text = "".join(pieces)
    return came


async def is_healthy(host: str, port: int) -> bool:
    """Return whether `GET /health` says that the model is loaded."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_S)
        try:
            writer.write(_request("GET /health", b""))
            return (await reader.readline()).split()[1:2] == [b"200"]
        finally:
            writer.close()
    except (OSError, asyncio.TimeoutError):
        return False


async def events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON of every server-sent event of a chunked HTTP body, up to its end.

    Raises:
        EOFError: the connection ended within the body.
        ValueError: an event is not JSON, or the body not chunked.
    """
    pending = b""
    async for part in _chunks(reader):
        *whole, pending = (pending + part).split(_END_OF_EVENT)
        for event in whole:
            data = event.removeprefix(b"data: ")
            if len(data) < len(event) and data != b"[DONE]":  # the rest are comments that keep it alive
                yield json.loads(data)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        part = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield part[:-2]


async def _expect_ok(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if status.split()[1:2] != ["200"]:
        told = (await reader.read(_READ_BYTES)).decode("utf-8", "replace")
        raise PerfError(f"llama.cpp's server refused a request: {status} {told[:500]}")


def _request(target: str, body: bytes) -> bytes:
    lines = (
        f"{target} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
