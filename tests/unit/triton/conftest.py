"""Hosts in this process: the fake Triton module, a tiny model, and an engine that does what the test says."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fake_triton import FakeServer, install
from tests.harness.scripted_engine import EngineCall, Script, ScriptedEngine, tokens
from tests.harness.tiny_model import write_tiny_model

install()

from naiad.tokenization import Tokenizer  # noqa: E402 - below: what imports the module
from naiad.triton import numpy_abi  # noqa: E402
from naiad.triton.engine_host import EngineHost  # noqa: E402
from naiad.triton.text_host import TextHost  # noqa: E402
from tests.unit.triton.engine_calls import Engine  # noqa: E402
from tests.unit.triton.text_calls import Text  # noqa: E402

numpy_abi.self_test()  # under numpy 2 it gives everybody else numpy's own function table back


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


@pytest.fixture
def engine_model(
    start: Callable[..., Any], triton: FakeServer, model_directory: Path
) -> Callable[..., Engine]:
    def make(*, decoupled: bool = True, **parameters: str) -> Engine:
        given = {
            "engine": "synthetic",
            "gpt_model_type": "inflight_fused_batching",
            "gpt_model_path": str(model_directory),
            "exclude_input_in_output": "true",
            "cancellation_check_period_ms": "2",
            **parameters,
        }
        return Engine(
            start(EngineHost, "tensorrt_llm", decoupled=decoupled, **given), triton, decoupled=decoupled
        )

    return make


@pytest.fixture
def text_model(
    start: Callable[..., Any],
    triton: FakeServer,
    model_directory: Path,
    engine: Callable[[Script], ScriptedEngine],
) -> Callable[..., Text]:
    def make(*, decoupled: bool = True, **parameters: str) -> Text:
        given = {
            "tokenizer_dir": str(model_directory),
            "cancellation_check_period_ms": "2",
            "max_live_requests": "16",
            **parameters,
        }
        return Text(
            start(TextHost, "tensorrt_llm_bls", decoupled=decoupled, **given), triton, decoupled=decoupled
        )

    return make


@pytest.fixture
def say(tokenizer: Tokenizer) -> Callable[..., Script]:
    """A script that streams a text token by token and ends with a reason."""

    def script(text: str, reason: str | None = "stop") -> Script:
        def run(call: EngineCall) -> Iterator[Mapping[str, Any]]:
            for token in tokenizer.encode(text):
                yield tokens([token])
            yield tokens([], reason) if reason else {}

        return run

    return script
