"""Short ways to call the text model's host and to read what it sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from naiad.contract import TENSORRT_LLM_BLS
from naiad.contract.errors import (
    NaiadError,
    parse_error,
)
from naiad.triton.text_host import TextHost
from tests.harness.fake_triton import FakeServer, IncomingRequest, Sent
from tests.harness.polling import poll
from tests.harness.scripted_engine import Script, ScriptedEngine
from tests.harness.tensors import arrays_of

ASK: dict[str, Any] = {"text_input": "one", "max_tokens": 100, "exclude_input_in_output": True}


STREAM: dict[str, Any] = {**ASK, "stream": True}


Outputs = Iterator[Mapping[str, Any]]


Scripted = Callable[[Script], ScriptedEngine]


class Text:
    """One host and short ways to call it."""

    def __init__(self, host: TextHost, triton: FakeServer, *, decoupled: bool) -> None:
        self.host, self.triton, self.decoupled = host, triton, decoupled

    def send(self, values: dict[str, Any] = STREAM, **options: Any) -> IncomingRequest:
        request = self.triton.request(
            arrays_of(TENSORRT_LLM_BLS, **values), decoupled=self.decoupled, **options
        )
        self.host.execute([request])
        return request

    def answer(self, values: dict[str, Any] = STREAM, **options: Any) -> list[Sent]:
        return self.send(values, **options).wait_ended()

    def idle(self) -> None:
        """Wait until no request is live any more."""
        poll(lambda: self.host._live == 0)


Start = Callable[..., Text]


def joined(messages: list[Sent]) -> str:
    parts = [message.tensors["text_output"] for message in messages if "text_output" in message.tensors]
    return "".join(part.item().decode() for part in parts)


def reason_of(message: Sent) -> str:
    return str(message.tensors["finish_reason"].item().decode())


def wait_for_data(request: IncomingRequest) -> None:
    request.wait_for(lambda: bool(request.sent))


def error_of(message: Sent) -> NaiadError:
    error = parse_error(str(message.error))
    assert error is not None
    return error
