"""A server's side of the conversation, written down in advance: messages, silences, errors, in order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tritonclient.grpc import service_pb2 as pb

from naiad_client.errors import Cancelled, NaiadError
from naiad_client.transport import Received


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True)
class Silence:
    """Nothing comes for so long."""

    seconds: float


class End:
    """The server ends the stream with status OK."""


END = End()
Step: TypeAlias = pb.ModelStreamInferResponse | Silence | NaiadError | End


@dataclass
class ScriptedWire:
    """Plays one script; refuses to be read beyond its end."""

    script: list[Step]
    clock: FakeClock
    cancelled: bool = False

    def receive(self, wait_s: float | None) -> Received | None:
        if self.cancelled:
            raise Cancelled("cancelled by this client")
        while True:
            if not self.script:
                raise AssertionError("read beyond the end of the script")
            step = self.script.pop(0)
            if isinstance(step, Silence):
                if wait_s is not None and step.seconds > wait_s:
                    self.clock.now_s += wait_s
                    raise TimeoutError
                self.clock.now_s += step.seconds
            elif isinstance(step, NaiadError):
                raise step
            elif isinstance(step, End):
                return None
            else:
                return Received(self.clock.now_s, step)

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class AsyncScriptedWire(ScriptedWire):
    async def receive(self, wait_s: float | None) -> Received | None:  # type: ignore[override]
        return super().receive(wait_s)


@dataclass
class _Scripts:
    """One script an attempt; refuses an attempt for which there is none."""

    scripts: Sequence[Sequence[Step]]
    clock: FakeClock = field(default_factory=FakeClock)
    requests: list[pb.ModelInferRequest] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)
    wires: list[Any] = field(default_factory=list)

    def _play(self, wire: type[Any], request: pb.ModelInferRequest, deadline_s: float | None) -> Any:
        if len(self.requests) == len(self.scripts):
            raise AssertionError("one attempt more than there are scripts")
        self.wires.append(wire(list(self.scripts[len(self.requests)]), self.clock))
        self.requests.append(request)
        self.deadlines.append(deadline_s)
        return self.wires[-1]


class ScriptedTransport(_Scripts):
    def open(self, request: pb.ModelInferRequest, *, deadline_s: float | None) -> ScriptedWire:
        return self._play(ScriptedWire, request, deadline_s)  # type: ignore[no-any-return]

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        raise AssertionError(f"no script for {method}")

    def close(self) -> None:
        for wire in self.wires:
            wire.cancel()


class AsyncScriptedTransport(_Scripts):
    def open(self, request: pb.ModelInferRequest, *, deadline_s: float | None) -> AsyncScriptedWire:
        return self._play(AsyncScriptedWire, request, deadline_s)  # type: ignore[no-any-return]

    async def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        raise AssertionError(f"no script for {method}")

    async def close(self) -> None:
        for wire in self.wires:
            wire.cancel()


def delta(
    text: str,
    *,
    tokens: int | None = 1,
    finish: str | None = None,
    prompt_tokens: int | None = 5,
    log_probs: Sequence[float] | None = None,
    final: bool = False,
) -> pb.ModelStreamInferResponse:
    """A data response as `tensorrt_llm_bls` sends it."""
    message = pb.ModelStreamInferResponse()
    response = message.infer_response
    add_output(response, "text_output", "BYTES", [1], packed_text(text))
    if prompt_tokens is not None:
        add_output(response, "num_input_tokens", "INT32", [1, 1], struct.pack("<i", prompt_tokens))
    if tokens is not None:
        add_output(response, "num_output_tokens", "INT32", [1, 1], struct.pack("<i", tokens))
    if finish is not None:
        add_output(response, "finish_reason", "BYTES", [1], packed_text(finish))
    if log_probs is not None:
        add_output(response, "output_log_probs", "FP32", [1, 1, len(log_probs)], _fp32(log_probs))
        add_output(response, "cum_log_probs", "FP32", [1, 1], _fp32([sum(log_probs)]))
    response.parameters["triton_final_response"].bool_param = final
    return message


def final() -> pb.ModelStreamInferResponse:
    """The empty response that ends every answer."""
    message = pb.ModelStreamInferResponse()
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return message


def failure(text: str) -> pb.ModelStreamInferResponse:
    """An error as Triton puts it into a stream."""
    return pb.ModelStreamInferResponse(error_message=text)


def add_output(response: Any, name: str, datatype: str, shape: list[int], raw: bytes) -> None:
    response.outputs.add(name=name, datatype=datatype, shape=shape)
    response.raw_output_contents.append(raw)


def packed_text(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def _fp32(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)
