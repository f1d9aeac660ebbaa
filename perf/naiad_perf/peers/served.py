"""Ours: `naiad serve`, asked over gRPC streams by the asyncio client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from naiad_client import AsyncClient, GenerationRequest, NaiadError, Retries, Timeouts
from naiad_perf.errors import PerfError
from naiad_perf.peers.closed_loop import Arrivals, closed_loop
from naiad_perf.peers.peer import Peer, Tell
from naiad_perf.processes.family import ProcessFamily
from naiad_perf.records import RequestRecord
from naiad_perf.servers.own_server import OwnServer
from naiad_perf.workload.load import Prompt

__all__ = ["Served"]

_MODEL = "tensorrt_llm_bls"
_LIMIT_S = 600.0
_PATIENT = Timeouts(total_s=_LIMIT_S, first_token_s=None, between_tokens_s=None)
Result = TypeVar("Result")


class Served(Peer):
    """`naiad serve` with a profile, model `tensorrt_llm_bls`."""

    name = "naiad"
    label = "Naiad, served"

    def __init__(self, profile: str, artifacts: Path, log: Path) -> None:
        """Prepare; nothing starts.

        Args:
            profile: deployment profile.
            artifacts: folder of the installed tritonserver.
            log: file for what the server says.
        """
        self._profile = profile
        self._server = OwnServer(profile, artifacts, log)
        self._started = False

    def start(self, tell: Tell) -> None:
        """See `Peer.start`."""
        self._started = True
        self._server.start()
        self._server.wait_healthy(_MODEL, tell)

    def stop(self) -> None:
        """See `Peer.stop`."""
        if self._started:
            self._started = False
            self._server.stop(politely=False)

    @property
    def processes(self) -> ProcessFamily:
        """See `Peer.processes`: supervisor, tritonserver, models."""
        return ProcessFamily(self._server.pid)

    @property
    def description(self) -> dict[str, str]:
        """See `Peer.description`."""
        return {
            "version": f"naiad {version('naiad')}, OpenVINO GenAI {version('openvino-genai')}",
            "settings": f"profile {self._profile}, model {_MODEL}, gRPC streams",
        }

    def burst(self, prompts: Sequence[Prompt], streams: int) -> tuple[RequestRecord, ...]:
        """See `Peer.burst`."""

        async def ask_all() -> tuple[RequestRecord, ...]:
            async with self._client() as client:
                await client.models()  # connected before the clock starts
                return await closed_loop(lambda prompt: _ask(client, prompt), prompts, streams, _LIMIT_S)

        return _run(ask_all())

    def continuation(self, prompt: Prompt) -> str | None:
        """See `Peer.continuation`."""

        async def ask() -> Arrivals:
            async with self._client() as client:
                return await _ask(client, prompt)

        return _run(ask()).text

    def _client(self) -> AsyncClient:
        return AsyncClient(
            self._server.grpc_url, model=_MODEL, timeouts=_PATIENT, retries=Retries(attempts=1)
        )


def _run(work: Coroutine[None, None, Result]) -> Result:
    try:
        return asyncio.run(work)
    except NaiadError as error:
        raise PerfError(f"{Served.label}: {error.message}") from error


async def _ask(client: AsyncClient, prompt: Prompt) -> Arrivals:
    came = Arrivals()
    request = GenerationRequest(
        text_input=prompt.text, max_tokens=prompt.output_tokens, min_tokens=prompt.output_tokens, top_k=1
    )
    came.sent_ns = time.monotonic_ns()
    async with client.stream(request) as stream:
        async for chunk in stream:
            came.took(chunk.num_output_tokens)
        came.ended()
        answer = stream.completion
    came.input_tokens, came.text = answer.usage.num_input_tokens, answer.text
    return came
