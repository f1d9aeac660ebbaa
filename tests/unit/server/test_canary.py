from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.server.canary import CanaryWatch, ProbeResult, text_probe
from naiad.server.config import CanaryPolicy
from tests.harness.server import free_ports, wait_until

POLICY = CanaryPolicy(model="llm", text="hé", max_tokens=2, period_s=0.01, timeout_s=0.5, failures=3)
Answer = Callable[[Any, grpc.ServicerContext], Iterator[Any]]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A real gRPC server that answers each streamed request with `answer`."""

    class Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # untyped
        def ModelStreamInfer(self, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
            for request in requests:
                yield from answer(request, context)

    with ThreadPoolExecutor(2) as threads:
        running = grpc.server(threads)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(), running)
        port = running.add_insecure_port("127.0.0.1:0")
        running.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            running.stop(None).wait()


def response(error: str = "") -> Any:
    return service_pb2.ModelStreamInferResponse(error_message=error)


def test_an_answer_is_an_answer_and_the_request_is_the_policys() -> None:
    seen = []

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        seen.append(request)
        yield response()
        yield response()

    with server(answer) as target:
        result = text_probe(target, POLICY)()
    assert result.answered
    assert result.seconds > 0
    (request,) = seen
    assert request.model_name == "llm"
    assert [(i.name, i.datatype, list(i.shape)) for i in request.inputs] == [
        ("text_input", "BYTES", [1, 1]),
        ("max_tokens", "INT32", [1, 1]),
    ]
    assert list(request.raw_input_contents) == [b"\x03\0\0\0h\xc3\xa9", b"\x02\0\0\0"]


@pytest.mark.parametrize(
    ("text", "answered"),
    [
        ("[QUEUE_FULL] 8 requests are waiting", True),
        ("in model 'x': [DRAINING] the server is shutting down", True),
        ("[ENGINE_UNAVAILABLE] the engine died", False),
        ("Stub process 'echo_0_0' is not healthy", False),
    ],
)
def test_a_refusal_for_load_is_a_sign_of_life_and_another_error_is_not(text: str, answered: bool) -> None:
    with server(lambda request, context: iter([response(text)])) as target:
        result = text_probe(target, POLICY)()
    assert result.answered is answered
    assert result.reason == ("" if answered else text)


def test_no_response_is_no_answer() -> None:
    with server(lambda request, context: iter([])) as target:
        result = text_probe(target, POLICY)()
    assert result == ProbeResult(False, result.seconds, "the stream ended without a response")


def test_silence_runs_into_the_policys_timeout() -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait(10)
        yield response()

    with server(answer) as target:
        result = text_probe(target, POLICY)()
    assert (result.answered, result.timed_out, result.reason) == (False, True, "no answer within 0.5 s")


def test_a_server_that_is_not_there_is_no_answer_and_raises_nothing() -> None:
    (port,) = free_ports(1)
    result = text_probe(f"127.0.0.1:{port}", POLICY)()
    assert not result.answered
    assert not result.timed_out
    assert result.reason.startswith("UNAVAILABLE")


class Script:
    """A probe that gives scripted results, the last one for ever."""

    def __init__(self, *results: ProbeResult) -> None:
        self.results = list(results)
        self.asked = 0

    def __call__(self) -> ProbeResult:
        self.asked += 1
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


OK = ProbeResult(True, 0.1)
BAD = ProbeResult(False, 0.1, "broken")
LATE = ProbeResult(False, 0.1, "late", timed_out=True)


@contextmanager
def watching(script: Script, progress: Callable[[], object] = lambda: None) -> Iterator[CanaryWatch]:
    watch = CanaryWatch(script, POLICY, progress)
    watch.start()
    try:
        yield watch
    finally:
        watch.close()


def test_failures_in_a_row_after_an_answer_are_death() -> None:
    with watching(Script(OK, BAD)) as watch:
        wait_until(lambda: watch.dead, 5, "enough failures in a row")
        assert watch.failures >= 3
        assert watch.last == BAD


def test_failures_before_the_first_answer_are_a_start_not_a_death() -> None:
    script = Script(BAD)
    watch = CanaryWatch(script, replace(POLICY, failures=1))
    watch.start()
    wait_until(lambda: script.asked >= 2, 5, "asked again")
    assert not watch.dead
    watch.close()


def test_an_answer_between_failures_starts_the_count_anew() -> None:
    script = Script(OK, BAD, BAD, OK, BAD, BAD, OK)
    with watching(script) as watch:
        wait_until(lambda: script.asked > 8, 5, "the script is over")
        assert not watch.dead
        assert watch.failures == 0


def test_timeouts_while_other_requests_get_on_are_not_counted() -> None:
    counter = iter(range(1_000_000))
    script = Script(OK, LATE)
    with watching(script, lambda: next(counter)) as watch:
        wait_until(lambda: script.asked > 8, 5, "asked often")
        assert watch.failures == 0


@pytest.mark.parametrize("progress", [lambda: None, lambda: 7])
def test_timeouts_while_nothing_moves_are_counted(progress: Callable[[], object]) -> None:
    with watching(Script(OK, LATE), progress) as watch:
        wait_until(lambda: watch.dead, 5, "enough timeouts in a row")


def test_errors_are_counted_whatever_else_gets_on() -> None:
    counter = iter(range(1_000_000))
    with watching(Script(OK, BAD), lambda: next(counter)) as watch:
        wait_until(lambda: watch.dead, 5, "enough errors in a row")
