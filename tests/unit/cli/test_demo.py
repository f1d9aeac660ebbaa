"""`naiad demo`: starts a server, shows one answer with its figures, and stops the server however it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc
from typer.testing import CliRunner, Result

from naiad.cli import demo
from naiad.cli.main import app
from naiad.server.config import ServeConfig
from naiad.server.errors import PreflightError
from naiad.server.state import Phase, ServerState
from naiad_client.console import figures
from naiad_client.response import Assembly
from tests.unit.client.scripted import delta, failure, final
from tests.unit.client.triton_server import ScriptedTriton, Visit, words

PATIENCE_S = 20.0


@dataclass
class Stage:
    """Where the demo's servers run: scripted ones, in this process, on the ports that it asks for."""

    triton: ScriptedTriton
    failure: Exception | None = None
    ends_early: bool = False
    set_up_in: list[Path] = field(default_factory=list)
    configs: list[ServeConfig] = field(default_factory=list)
    stopped: list[ServeConfig] = field(default_factory=list)

    def supervisor(self, config: ServeConfig) -> ScriptedSupervisor:
        self.configs.append(config)
        return ScriptedSupervisor(self, config)


class ScriptedSupervisor:
    """Serves between `run` and `request_stop`; ready only once its port answers."""

    def __init__(self, stage: Stage, config: ServeConfig) -> None:
        self._stage = stage
        self._config = config
        self._stopping = False
        self.state: ServerState | None = None

    def request_stop(self) -> None:
        self._stopping = True

    def run(self) -> int:
        self._enter(Phase.STARTING)
        if self._stage.failure is not None:
            raise self._stage.failure
        if self._stage.ends_early:
            return 1
        server = grpc.server(ThreadPoolExecutor(4))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self._stage.triton, server)
        server.add_insecure_port(f"127.0.0.1:{self._config.grpc_port}")
        server.start()
        self._enter(Phase.READY)
        deadline_s = time.monotonic() + PATIENCE_S
        while not self._stopping:
            assert time.monotonic() < deadline_s, "nobody stopped the server"
            time.sleep(0.005)
        server.stop(grace=0).wait()
        self._stage.stopped.append(self._config)
        return 0

    def _enter(self, phase: Phase) -> None:
        config = self._config
        ports = (config.http_port, config.grpc_port, config.metrics_port)
        self.state = ServerState(phase, "scripted", 1, None, config.address, *ports, 0, 0.0)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage(ScriptedTriton({"What is the capital of Japan?": words, "words": words}))
    monkeypatch.setattr(demo, "set_up", stage.set_up_in.append)
    monkeypatch.setattr(demo, "Supervisor", stage.supervisor)
    return stage


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments], env={"COLUMNS": "200"})


def test_the_answer_is_on_stdout_and_the_rest_around_it_on_stderr(stage: Stage) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert result.stdout == "Héllo 🌍 世界\n"
    ready, question, last = result.stderr.splitlines()
    assert ready.startswith("ready after ")
    assert question == "question: What is the capital of Japan?"
    assert last.startswith("prompt 5 tokens | output 5 tokens | TTFT ")
    assert last.endswith(" tokens/s")


def test_the_question_and_its_limit_reach_the_server_as_a_chat(stage: Stage) -> None:
    assert run("words", "--max-tokens", "7").exit_code == 0
    (visit,) = stage.triton.visits
    inputs = zip(visit.request.inputs, visit.request.raw_input_contents, strict=True)
    tensors = {tensor.name: raw for tensor, raw in inputs}
    assert tensors["max_tokens"] == b"\x07\0\0\0"
    assert b'"user"' in tensors["messages"]
    assert visit.prompt == "words"


def test_in_a_folder_without_a_repository_nothing_is_set_up(stage: Stage, tmp_path: Path) -> None:
    result = run("--artifacts", str(tmp_path / "a"), "--model-repository", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "no model repository" in result.stderr
    assert stage.set_up_in == []


def test_it_sets_up_and_serves_the_folders_it_was_given_on_ports_of_its_own(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "r").mkdir()
    result = run("--artifacts", str(tmp_path / "a"), "--model-repository", str(tmp_path / "r"))
    assert result.exit_code == 0, result.output
    assert stage.set_up_in == [tmp_path / "a"]
    (config,) = stage.configs
    assert (config.artifacts, config.model_repository) == (tmp_path / "a", tmp_path / "r")
    ports = {config.http_port, config.grpc_port, config.metrics_port}
    assert len(ports) == 3
    assert not ports & {0, 8000, 8001, 8002}


def test_the_server_is_stopped_after_the_answer(stage: Stage) -> None:
    run()
    assert stage.stopped == stage.configs
    assert len(stage.stopped) == 1


def cut(visit: Visit) -> Iterator[Any]:
    yield delta("half")
    yield failure("[ENGINE_UNAVAILABLE] the engine is restarting")


def test_a_question_that_fails_is_told_and_the_server_is_stopped_all_the_same(stage: Stage) -> None:
    stage.triton.behaviours["words"] = cut
    result = run("words")
    assert result.exit_code == 1
    assert result.stdout == "half\n"
    assert "the engine is restarting [ENGINE_UNAVAILABLE] (the answer is incomplete)" in result.stderr
    assert stage.stopped == stage.configs


def fails(stage: Stage) -> None:
    stage.failure = PreflightError("port 1 is taken", "free it")


def ends(stage: Stage) -> None:
    stage.ends_early = True


@pytest.mark.parametrize(
    ("happens", "said"),
    [(fails, "error: port 1 is taken\n  -> free it"), (ends, "error: the server ended\n  -> see ")],
)
def test_a_server_that_does_not_come_up_is_told_and_nothing_is_asked(
    stage: Stage, happens: Callable[[Stage], None], said: str
) -> None:
    happens(stage)
    result = run()
    assert result.exit_code == 1
    assert said in result.stderr
    assert "question:" not in result.stderr
    assert result.stdout == ""
    assert stage.triton.visits == []


def line(arrivals: list[tuple[float, int]], *, ended_s: float) -> str:
    """The figures of an answer asked for at 100 s whose pieces came at (time, tokens)."""
    assembly = Assembly()
    for at_s, tokens in arrivals:
        assembly.add(delta("x", tokens=tokens).infer_response, at_s)
    assembly.add(final().infer_response, ended_s)
    return figures(assembly.completion(started_s=100.0, ended_s=ended_s))


@pytest.mark.parametrize(
    ("arrivals", "ended_s", "expected"),
    [
        (
            [(100.25, 1), (100.35, 2), (100.75, 2)],
            102.0,
            "prompt 5 tokens | output 5 tokens | TTFT 250 ms | ITL 125.0 ms | 2.5 tokens/s",
        ),
        (
            [(100.5, 9)],
            103.0,
            "prompt 5 tokens | output 9 tokens | TTFT 500 ms | ITL ? ms | 3.0 tokens/s",
        ),
        ([], 101.0, "prompt ? tokens | output ? tokens | TTFT ? ms | ITL ? ms | ? tokens/s"),
    ],
    ids=["streamed", "at once", "nothing came"],
)
def test_the_last_line_has_the_figures_of_known_times(
    arrivals: list[tuple[float, int]], ended_s: float, expected: str
) -> None:
    assert line(arrivals, ended_s=ended_s) == expected
