"""A gRPC server in this process that speaks Triton's service and plays one behaviour for each prompt."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from tests.unit.client.scripted import delta, failure, final

PATIENCE_S = 10.0
Behaviour = Callable[["Visit"], Iterator[pb.ModelStreamInferResponse]]


@dataclass
class Visit:
    """One stream as the server sees it."""

    request: pb.ModelInferRequest
    metadata: dict[str, str]
    time_left_s: float | None
    number: int
    ended: threading.Event = field(default_factory=threading.Event)
    returned: bool = False
    abort: Callable[[grpc.StatusCode, str], None] = lambda *_: None

    @property
    def prompt(self) -> str:
        names = [tensor.name for tensor in self.request.inputs]
        kind = "text_input" if "text_input" in names else "messages"
        text = self.request.raw_input_contents[names.index(kind)][4:].decode()
        return text if kind == "text_input" else str(json.loads(text)[-1]["content"])

    def until_cancelled(self) -> None:
        """Stay silent until the client goes away."""
        if not self.ended.wait(PATIENCE_S):
            raise AssertionError("the client never went away")

    @property
    def cancelled(self) -> bool:
        return self.ended.is_set() and not self.returned


class ScriptedTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Refuses prompts without a behaviour, and more or less than one request a stream."""

    def __init__(self, behaviours: dict[str, Behaviour]) -> None:
        self.behaviours = behaviours
        self.visits: list[Visit] = []
        self.live = self.ready = True
        self.address = ""
        self._lock = threading.Lock()

    def visits_for(self, prompt: str) -> list[Visit]:
        with self._lock:
            return [visit for visit in self.visits if visit.prompt == prompt]

    def ModelStreamInfer(self, requests: Iterator[pb.ModelInferRequest], context: Any) -> Iterator[Any]:  # noqa: N802
        request = next(requests)
        left = context.time_remaining()
        with self._lock:
            number = 1 + sum(
                visit.request.id.split(".")[0] == request.id.split(".")[0] for visit in self.visits
            )
            visit = Visit(request, dict(context.invocation_metadata()), left, number, abort=context.abort)
            self.visits.append(visit)
        context.add_callback(visit.ended.set)
        behaviour = self.behaviours.get(visit.prompt)
        if behaviour is None:
            yield failure(f"no behaviour for {visit.prompt!r}")
            return
        yield from behaviour(visit)
        visit.returned = next(requests, None) is None

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerLiveResponse(live=self.live)

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerReadyResponse(ready=self.ready)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        index = pb.RepositoryIndexResponse()
        index.models.add(name="tensorrt_llm_bls", version="1", state="READY")
        index.models.add(name="broken", version="2", state="UNAVAILABLE", reason="no tokenizer [x]")
        index.models.add(name="idle")
        return index


def words(visit: Visit) -> Iterator[Any]:
    yield delta("Hé", tokens=1)
    yield delta("llo ", tokens=2)
    yield delta("🌍 世界", tokens=2)
    yield delta("", tokens=0, finish="stop")
    yield final()


def truncated(visit: Visit) -> Iterator[Any]:
    yield delta("half")


def refused(visit: Visit) -> Iterator[Any]:
    yield failure("[PROMPT_TOO_LONG] 9000 prompt tokens, at most 2048")


def no_token(visit: Visit) -> Iterator[Any]:
    visit.until_cancelled()
    yield final()


def one_token_then_silence(visit: Visit) -> Iterator[Any]:
    yield delta("one")
    visit.until_cancelled()
    yield final()


def slow_for_ever(visit: Visit) -> Iterator[Any]:
    while not visit.ended.wait(0.02):
        yield delta("x")


def full_twice(visit: Visit) -> Iterator[Any]:
    if visit.number < 3:
        yield failure("[QUEUE_FULL] the queue is full")
    else:
        yield from words(visit)


def full_after_a_token(visit: Visit) -> Iterator[Any]:
    yield delta("one")
    yield failure("[QUEUE_FULL] the queue is full")


def dies(visit: Visit) -> Iterator[Any]:
    yield delta("one")
    visit.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def unknown_model(visit: Visit) -> Iterator[Any]:
    yield failure(f"Request for unknown model: '{visit.request.model_name}' is not found")


def numbered(visit: Visit) -> Iterator[Any]:
    for number in range(50):
        yield delta(f"{visit.request.id}:{number} ")
    yield final()


BEHAVIOURS: dict[str, Behaviour] = {
    "Hi": words,
    "words": words,
    "truncated": truncated,
    "refused": refused,
    "no token": no_token,
    "one token": one_token_then_silence,
    "slow": slow_for_ever,
    "full twice": full_twice,
    "full late": full_after_a_token,
    "dies": dies,
    "unknown model": unknown_model,
    "numbered": numbered,
}


@contextmanager
def running() -> Iterator[ScriptedTriton]:
    """Serve on a free port of the loopback until the block ends."""
    triton = ScriptedTriton(dict(BEHAVIOURS))
    server = grpc.server(ThreadPoolExecutor(32))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    triton.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield triton
    finally:
        server.stop(grace=0).wait()


def eventually(what: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Whether `what` becomes true in time."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        if what():
            return True
        time.sleep(0.005)
    return what()
