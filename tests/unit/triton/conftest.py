"""Hosts in this process: the fake Triton module, a tiny model, and an engine that does what the test says."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.fake_triton import FakeServer, InferenceRequest, install
from tests.harness.fake_triton_data import InferenceResponse, Tensor
from tests.harness.tiny_model import write_tiny_model

install()

from naiad.tokenization import Tokenizer  # noqa: E402 - below: what imports the module
from naiad.triton import numpy_abi  # noqa: E402

numpy_abi.self_test()  # under numpy 2 it gives everybody else numpy's own function table back

Script = Callable[["EngineCall"], Iterator[Mapping[str, Any]]]


@pytest.fixture
def triton() -> Iterator[FakeServer]:
    """A server of the test's own; at the end every request that it delivered must have ended, once."""
    server = FakeServer().connect()
    yield server
    unanswered = [request for request in server.requests if not request.ended and not request.closed]
    assert unanswered == []
    assert all(sum(message.final for message in request.sent) <= 1 for request in server.requests)


class LogLines(logging.Handler):
    """Collects what the `naiad` loggers say, formatted with tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {logging.Formatter().format(record)}")

    def about(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


@pytest.fixture(autouse=True)
def log() -> Iterator[LogLines]:
    """The hosts configure logging for a process of their own: put everything back."""
    logger = logging.getLogger("naiad")
    before = logger.handlers[:], logger.propagate, logger.level
    lines = LogLines()
    logger.handlers[:], logger.propagate = [lines], False
    logger.setLevel(logging.INFO)
    yield lines
    logger.handlers[:], logger.propagate, logger.level = before


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tokenizer(model_directory: Path) -> Tokenizer:
    return Tokenizer.load(model_directory)


def initialize_arguments(
    model: str, parameters: Mapping[str, str], *, decoupled: bool = True
) -> dict[str, str]:
    """Return what Triton hands to `initialize`."""
    config = {
        "model_transaction_policy": {"decoupled": decoupled},
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
    }
    return {
        "model_name": model,
        "model_version": "1",
        "model_repository": f"/repository/{model}",
        "model_config": json.dumps(config),
    }


@pytest.fixture
def start(triton: FakeServer, log: LogLines) -> Iterator[Callable[..., Any]]:
    """Start a host of a class with parameters; it is finalized at the end of the test."""
    hosts: list[Any] = []

    def start_host(kind: Any, model: str, *, decoupled: bool = True, **parameters: str) -> Any:
        host = kind()
        host.initialize(initialize_arguments(model, parameters, decoupled=decoupled))
        logging.getLogger("naiad").handlers[:] = [log]
        hosts.append(host)
        return host

    yield start_host
    for host in reversed(hosts):
        if hasattr(host, "finalize"):  # Triton does without, too
            host.finalize()


def poll(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Look every millisecond until `condition` holds; an AssertionError after `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"it never held within {within_s:g} s"
        time.sleep(0.001)


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


@pytest.fixture
def engine(triton: FakeServer) -> Iterator[Callable[[Script], ScriptedEngine]]:
    """Put a scripted engine behind the name `tensorrt_llm`; what hangs in it ends with the test."""
    made: list[ScriptedEngine] = []

    def script_engine(script: Script) -> ScriptedEngine:
        made.append(ScriptedEngine(script))
        triton.models["tensorrt_llm"] = made[-1]
        return made[-1]

    yield script_engine
    for each in made:
        each.released.set()


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
