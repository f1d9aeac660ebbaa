"""A real request through the whole server, and a watch that repeats it.

Triton's readiness stays true when a model's process is dead or hangs; only an answer proves an answer.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.contract.errors import Draining, Overloaded, parse_error
from naiad.server.config import CanaryPolicy

__all__ = ["CanaryWatch", "Probe", "ProbeResult", "text_probe"]

# The proxy that http_proxy names is not for our own machine.
_CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0))


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One canary: whether the server answered, how long that took, and if not, why (one line)."""

    answered: bool
    seconds: float
    reason: str = ""
    timed_out: bool = False


class Probe(Protocol):
    """One canary request."""

    def __call__(self) -> ProbeResult:
        """Ask and wait for the answer; never raises for what the server does."""


def text_probe(target: str, policy: CanaryPolicy) -> Probe:
    """Return the probe that streams `policy.text` through `policy.model` at gRPC address `target`.

    A refusal because of load counts as an answer: the server is alive and says so.
    """

    def probe() -> ProbeResult:
        started_s = time.monotonic()
        reason, timed_out = _ask(target, _request(policy), policy.timeout_s)
        return ProbeResult(not reason, time.monotonic() - started_s, reason, timed_out)

    return probe


def _request(policy: CanaryPolicy) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name=policy.model, id="naiad-canary")
    text = policy.text.encode()
    for name, datatype, raw in (
        ("text_input", "BYTES", struct.pack("<I", len(text)) + text),
        ("max_tokens", "INT32", struct.pack("<i", policy.max_tokens)),
    ):
        request.inputs.add(name=name, datatype=datatype, shape=[1, 1])
        request.raw_input_contents.append(raw)
    return request


def _ask(target: str, request: service_pb2.ModelInferRequest, timeout_s: float) -> tuple[str, bool]:
    """Return ("", False) for a response and a good end, else why not and whether time ran out."""
    responses = 0
    try:
        with grpc.insecure_channel(target, options=_CHANNEL_OPTIONS) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for message in stub.ModelStreamInfer(iter([request]), timeout=timeout_s):
                if message.error_message:
                    alive = isinstance(parse_error(message.error_message), (Overloaded, Draining))
                    return ("" if alive else _one_line(message.error_message)), False
                responses += 1
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {timeout_s:g} s", True
        return f"{error.code().name}: {_one_line(error.details() or '')}", False
    return ("" if responses else "the stream ended without a response"), False


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


class CanaryWatch:
    """Repeats a probe on a thread of its own: quickly until the first answer, then once a period.

    Attributes:
        answered: set at the first answer.
    """

    def __init__(
        self, probe: Probe, policy: CanaryPolicy, progress: Callable[[], object] = lambda: None
    ) -> None:
        """`progress` returns a value that changes while other requests get on; None: unknown.

        A canary that waits behind a long queue of requests that do get on is slow, not dead.
        """
        self._probe = probe
        self._policy = policy
        self._progress = progress
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._failures = 0
        self._last = ProbeResult(False, 0.0)
        self.answered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="naiad-canary", daemon=True)

    def start(self) -> None:
        """Begin asking."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking; a request under way is left to its timeout."""
        self._closed.set()

    @property
    def last(self) -> ProbeResult:
        """The latest result."""
        with self._lock:
            return self._last

    @property
    def failures(self) -> int:
        """Failures in a row since the first answer."""
        with self._lock:
            return self._failures

    @property
    def dead(self) -> bool:
        """Whether so many canaries failed in a row that the server counts as dead."""
        return self.answered.is_set() and self.failures >= self._policy.failures

    def _run(self) -> None:
        while not self._closed.is_set():
            before = self._progress()
            result = self._probe()
            stuck = not result.timed_out or before is None or self._progress() == before
            with self._lock:
                self._last = result
                self._failures = 0 if result.answered or not stuck else self._failures + 1
            if result.answered:
                self.answered.set()
            failing_start = not self.answered.is_set()
            self._closed.wait(0.2 if failing_start else self._policy.period_s)
