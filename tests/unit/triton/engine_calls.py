"""Short ways to call the engine's host and to read what it sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import NaiadError, parse_error
from naiad.triton.engine_host import EngineHost
from tests.harness.fake_triton import FakeServer, IncomingRequest, Sent
from tests.harness.tensors import arrays_of

PROMPT: dict[str, Any] = {"input_ids": (40, 41, 42), "input_lengths": 3, "request_output_len": 5}


BATCH: dict[str, Any] = {
    "input_ids": [[40, 41], [50, 51]], "input_lengths": [[2], [2]], "request_output_len": [[3], [3]],
}  # fmt: skip


SLOW = {"synthetic_step_ms": "5"}


LONG: dict[str, Any] = {**PROMPT, "request_output_len": 400}


STOP: dict[str, Any] = {"input_ids": (0,), "input_lengths": 1, "request_output_len": 0, "stop": True}


class Engine:
    """One host and short ways to call it."""

    def __init__(self, host: EngineHost, triton: FakeServer, *, decoupled: bool) -> None:
        self.host, self.triton, self.decoupled = host, triton, decoupled

    def send(self, values: dict[str, Any] = PROMPT, **options: Any) -> IncomingRequest:
        request = self.triton.request(arrays_of(TENSORRT_LLM, **values), decoupled=self.decoupled, **options)
        self.host.execute([request])
        return request

    def answer(self, values: dict[str, Any] = PROMPT, **options: Any) -> list[Sent]:
        return self.send(values, **options).wait_ended()

    def refusal(self, values: dict[str, Any] = PROMPT, **options: Any) -> NaiadError:
        (message,) = self.answer(values, **options)
        assert message.error is not None
        error = parse_error(message.error)
        assert error is not None
        return error


Start = Callable[..., Engine]


def ids(messages: list[Sent]) -> list[int]:
    return [
        int(token)
        for message in messages
        if "output_ids" in message.tensors
        for token in message.tensors["output_ids"].reshape(-1)
    ]


def reasons(messages: list[Sent]) -> list[str]:
    return [
        message.tensors["finish_reason"].item().decode()
        for message in messages
        if "finish_reason" in message.tensors
    ]
