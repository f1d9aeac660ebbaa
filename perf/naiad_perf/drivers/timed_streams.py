"""One request over our own gRPC client, with the time of everything that happens to it.

Works with threads and, where the standard library is patched, with gevent's greenlets.
"""

from __future__ import annotations

import struct
import threading
import time
import uuid
from dataclasses import dataclass, field

from tritonclient.grpc import service_pb2

from naiad_client import Client, Completion, GenerationRequest, NaiadError, Retries, Timeouts
from naiad_client.grpc_sync import GrpcTransport
from naiad_client.transport import Received, Wire
from naiad_perf.records import Outcome
from naiad_perf.workload.load import Prompt

__all__ = ["IdsRequest", "StreamingClient", "TimedAnswer", "request_for"]


@dataclass(slots=True)
class TimedAnswer:
    """What came back for one request; fields as in `RequestRecord`."""

    sent_ns: int = 0
    response_ns: list[int] = field(default_factory=list)
    response_tokens: list[int] = field(default_factory=list)
    ended_ns: int | None = None
    outcome: Outcome = Outcome.OK
    error: str = ""
    input_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsRequest(GenerationRequest):
    """The same request for the engine model, which takes token ids; only the length ends its answer."""

    ids: tuple[int, ...]

    def to_protobuf(
        self, *, model: str, request_id: str, timeout_s: float | None = None
    ) -> service_pb2.ModelInferRequest:
        """As `GenerationRequest.to_protobuf`."""
        message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        _add(message, "input_ids", "INT32", len(self.ids), struct.pack(f"<{len(self.ids)}i", *self.ids))
        for name, value in (
            ("input_lengths", len(self.ids)),
            ("request_output_len", self.max_tokens),
            ("end_id", -1),
        ):
            _add(message, name, "INT32", 1, struct.pack("<i", value))
        for name in ("streaming", "return_num_input_tokens", "return_num_output_tokens"):
            _add(message, name, "BOOL", 1, b"\x01")
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        if timeout_s is not None:
            message.parameters["timeout"].int64_param = max(1, round(timeout_s * 1_000_000))
        return message


def _add(message: service_pb2.ModelInferRequest, name: str, datatype: str, count: int, raw: bytes) -> None:
    message.inputs.add(name=name, datatype=datatype, shape=[1, count])
    message.raw_input_contents.append(raw)


def request_for(prompt: Prompt, *, takes_ids: bool) -> GenerationRequest:
    """Return the request for a prompt; its answer will have the exact length."""
    if takes_ids:
        return IdsRequest(text_input=prompt.text or "-", ids=prompt.ids, max_tokens=prompt.output_tokens)
    return GenerationRequest(
        text_input=prompt.text, max_tokens=prompt.output_tokens, min_tokens=prompt.output_tokens
    )


class StreamingClient:
    """Our client, asking one request at a time of each caller and never repeating one.

    Args:
        url: ``host:port``.
        model: the model to ask.
        timeout_s: a request that takes longer is an error.
    """

    def __init__(self, url: str, model: str, timeout_s: float) -> None:
        self._transport = _TimedTransport(url)
        self._client = Client(
            url,
            model=model,
            timeouts=Timeouts(total_s=timeout_s, first_token_s=None, between_tokens_s=None),
            retries=Retries(attempts=1),
            transport=self._transport,
        )

    def close(self) -> None:
        """End every stream and the connection."""
        self._client.close()

    def ask(self, request: GenerationRequest, cancel_after_s: float | None = None) -> TimedAnswer:
        """Send a request and wait for its end, whatever it is.

        Args:
            request: what to ask.
            cancel_after_s: hang up so many seconds after sending; None: never.
        """
        answer = TimedAnswer(sent_ns=_now_ns())
        request_id = uuid.uuid4().hex
        stream = self._client.stream(request, request_id=request_id)
        hang_up: threading.Timer | None = None
        try:
            with stream:
                wire = self._transport.claim(request_id)
                answer.sent_ns = wire.sent_ns
                if cancel_after_s is not None:
                    hang_up = threading.Timer(cancel_after_s, stream.cancel)
                    hang_up.start()
                for chunk in stream:
                    if chunk.num_output_tokens:
                        answer.response_ns.append(wire.arrived_ns)
                        answer.response_tokens.append(chunk.num_output_tokens)
        except NaiadError as error:
            answer.outcome, answer.error, answer.ended_ns = Outcome.ERROR, error.code, _now_ns()
        else:
            _conclude(answer, stream.completion, wire)
        finally:
            if hang_up is not None:
                hang_up.cancel()
        return answer


def _conclude(answer: TimedAnswer, completion: Completion, wire: _TimedWire) -> None:
    """Say how a request ended that did not fail on the client's side."""
    answer.input_tokens = completion.usage.num_input_tokens
    if completion.finish_reason != "cancelled":
        answer.ended_ns = wire.arrived_ns
    elif wire.cancelled_ns is not None:
        answer.outcome, answer.ended_ns = Outcome.CANCELLED, wire.cancelled_ns
    else:  # the server cut it, for example while draining
        answer.outcome, answer.error, answer.ended_ns = Outcome.ERROR, "CANCELLED", wire.arrived_ns


class _TimedTransport(GrpcTransport):
    """Notes when each request was sent and when its messages came."""

    def __init__(self, url: str) -> None:
        super().__init__(url, connect_s=Timeouts().connect_s)
        self._wires: dict[str, _TimedWire] = {}

    def open(self, request: service_pb2.ModelInferRequest, *, deadline_s: float | None) -> Wire:
        sent_ns = _now_ns()
        wire = _TimedWire(super().open(request, deadline_s=deadline_s), sent_ns)
        self._wires[request.id] = wire
        return wire

    def claim(self, request_id: str) -> _TimedWire:
        return self._wires.pop(request_id)


class _TimedWire:
    def __init__(self, wire: Wire, sent_ns: int) -> None:
        self._wire = wire
        self.sent_ns = sent_ns
        self.arrived_ns = sent_ns
        self.cancelled_ns: int | None = None

    def receive(self, wait_s: float | None) -> Received | None:
        received = self._wire.receive(wait_s)
        if received is not None and self.cancelled_ns is None:
            self.arrived_ns = round(received.at_s * 1e9)
        return received

    def cancel(self) -> None:
        if self.cancelled_ns is None:
            self.cancelled_ns = _now_ns()
        self._wire.cancel()


def _now_ns() -> int:
    """Return the time on the client's own clock; whole, because records are."""
    return round(time.monotonic() * 1e9)
