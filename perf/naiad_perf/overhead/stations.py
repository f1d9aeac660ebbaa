"""How long a request's first token takes from station to station, by the engine's own clock readings.

The client runs on the server's machine, so both read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from naiad_client import GenerationRequest
from naiad_client.errors import NaiadError
from naiad_client.grpc_aio import AioGrpcTransport
from naiad_perf.errors import PerfError
from naiad_perf.workload.load import Prompt

__all__ = ["STATIONS", "Stations", "measure_stations"]

STATIONS = ("to the engine", "waiting there", "first token made", "back to the client")
_LIMIT_S = 300.0
_CONNECT_S = 5.0
_TIMES = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns")


@dataclass(frozen=True, slots=True)
class Stations:
    """One request's way to its first token, in nanoseconds between stations, in the order of `STATIONS`."""

    stages_ns: tuple[int, ...]

    @property
    def ttft_ns(self) -> int:
        """From sending to the first token's arrival at the client."""
        return sum(self.stages_ns)


def measure_stations(url: str, model: str, prompts: Sequence[Prompt], streams: int) -> list[Stations]:
    """Ask all prompts, `streams` at once, and return the way of each.

    Raises:
        PerfError: a request failed, or the model does not give its times.
    """
    try:
        return asyncio.run(_measure(url, model, prompts, streams))
    except NaiadError as error:
        raise PerfError(f"{model}: {error.message}") from error


async def _measure(url: str, model: str, prompts: Sequence[Prompt], streams: int) -> list[Stations]:
    transport = AioGrpcTransport(url, connect_s=_CONNECT_S)
    waiting = iter(enumerate(prompts))
    found: list[Stations] = []

    async def stream() -> None:
        for index, prompt in waiting:  # streams share the iterator
            found.append(await _one(transport, model, prompt, f"stations-{index}"))

    try:
        await transport.call("ServerLive", service_pb2.ServerLiveRequest(), timeout_s=_CONNECT_S)
        await asyncio.gather(*(stream() for _ in range(streams)))
    finally:
        await transport.close()
    return found


async def _one(transport: AioGrpcTransport, model: str, prompt: Prompt, request_id: str) -> Stations:
    tokens = prompt.output_tokens
    request = GenerationRequest(text_input=prompt.text, max_tokens=tokens, min_tokens=tokens, top_k=1)
    message = request.to_protobuf(model=model, request_id=request_id)
    wanted = message.inputs.add(name="return_perf_metrics", datatype="BOOL", shape=[1, 1])
    if message.raw_input_contents:
        message.raw_input_contents.append(b"\x01")
    else:
        wanted.contents.bool_contents.append(True)
    sent_ns = time.monotonic_ns()
    wire = transport.open(message, deadline_s=_LIMIT_S)
    first_ns: int | None = None
    times: dict[str, int] = {}
    while (received := await wire.receive(_LIMIT_S)) is not None:
        if received.message.error_message:
            raise PerfError(f"{model}: {received.message.error_message}")
        response = received.message.infer_response
        if first_ns is None and response.outputs:
            first_ns = round(received.at_s * 1e9)
        times.update(_times(response))
        if response.parameters["triton_final_response"].bool_param:
            break
    if first_ns is None or any(name not in times for name in _TIMES):
        raise PerfError(f"{model} did not say when it took up the request and made its first token")
    passed = [sent_ns, *(times[name] for name in _TIMES), first_ns]
    return Stations(tuple(later - earlier for earlier, later in itertools.pairwise(passed)))


def _times(response: Any) -> dict[str, int]:
    return {
        output.name: int(np.frombuffer(raw, dtype=np.int64)[0])
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=False)
        if output.name in _TIMES
    }
