"""An engine model whose calls do what the test says, at the moment it says, for calls made through BLS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.harness.fake_triton import InferenceRequest
from tests.harness.fake_triton_data import InferenceResponse, Tensor

__all__ = ["EngineCall", "Script", "ScriptedEngine", "tokens"]


Script = Callable[["EngineCall"], Iterator[Mapping[str, Any]]]


@dataclass
class EngineCall:
    """One call of the scripted engine, as the engine sees it."""

    request_id: str
    tensors: Mapping[str, Any]
    requested: Sequence[str]
    timeout_us: int
    released: threading.Event
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def prompt(self) -> list[int]:
        return [int(token) for token in self.tensors["input_ids"].reshape(-1)]

    def hang(self) -> None:
        """Do nothing until the test is over, as an engine whose process died."""
        assert self.released.wait(30)

    def wait_for_stop(self) -> None:
        assert self.stopped.wait(10)


class ScriptedEngine:
    """An engine model for BLS calls: each runs the script, a generator of output tensors."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[EngineCall] = []
        self.stops: list[str] = []
        self.released = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, request: InferenceRequest) -> Iterator[InferenceResponse]:
        tensors = request.tensors()
        if "stop" in tensors and tensors["stop"].all():
            with self._lock:
                self.stops.append(request.request_id())
                for call in self.calls:
                    if call.request_id == request.request_id():
                        call.stopped.set()
            return iter([InferenceResponse()])
        call = EngineCall(
            request.request_id(), tensors, request.requested_output_names(), request.timeout(), self.released
        )
        with self._lock:
            self.calls.append(call)
        return self._responses(call)

    def _responses(self, call: EngineCall) -> Iterator[InferenceResponse]:
        for outputs in self.script(call):
            asked = {name: array for name, array in outputs.items() if name in call.requested}
            yield InferenceResponse([Tensor(name, array) for name, array in asked.items()])


def tokens(ids: Sequence[int], reason: str | None = None, **more: Any) -> dict[str, Any]:
    """Return an engine response of these ids, the last one with its reason."""
    outputs = {
        "output_ids": np.array(ids, dtype=np.int32).reshape(1, 1, -1),
        "sequence_length": np.array([[len(ids)]], dtype=np.int32),
        **more,
    }
    if reason is not None:
        outputs["finish_reason"] = np.array([[reason.encode()]], dtype=np.object_)
    return outputs
