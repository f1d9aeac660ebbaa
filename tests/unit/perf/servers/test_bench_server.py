"""When a server counts as healthy: its own word, the model's configuration, and one real token."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from naiad_client import ConnectFailed, EngineUnavailable, InvalidArgument, ModelNotFound, NaiadError
from naiad_perf.errors import PerfError
from naiad_perf.servers import bench_server
from naiad_perf.servers.bench_server import BenchServer, GivenServer
from naiad_perf.servers.figures import ModelFacts
from naiad_perf.servers.own_server import OwnServer
from naiad_perf.servers.pool import Servers
from naiad_perf.workload.scenario import ExistingServer, Subject
from tests.harness.scripted_sweep import ScriptedTriton


class Ready(ScriptedTriton):
    """Says whether it is ready as well."""

    ready = True

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        if method == "ServerReady":
            return service_pb2.ServerReadyResponse(ready=self.ready)
        return super().call(method, request, timeout_s=timeout_s)


class Server(BenchServer):
    """Goes through what it is doing; a probe then raises what its script says, or answers."""

    def __init__(self, doing: Sequence[str | None] = (), probes: Sequence[NaiadError | None] = ()) -> None:
        super().__init__("profile lab", "127.0.0.1:1", "127.0.0.1:2")
        self.triton.close()
        self.script = Ready()
        self.triton = self.script  # type: ignore[assignment]
        self._doing: Iterator[str | None] = iter(doing)
        self._probes: Iterator[NaiadError | None] = iter(probes)
        self.probed: list[str] = []

    def progress(self) -> str | None:
        return next(self._doing, None)

    def incarnation(self) -> Hashable:
        return None

    def metrics(self) -> dict[str, float]:
        return {}

    def cpu_s(self) -> float | None:
        return None

    def _probe(self, facts: ModelFacts) -> None:
        self.probed.append(facts.name)
        error = next(self._probes, None)
        if error is not None:
            raise error


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_server, "_POLL_S", 0.0)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def wait(told: list[str]) -> Callable[[Server], ModelFacts]:
    return lambda server: server.wait_healthy("tensorrt_llm_bls", told.append)


def test_a_healthy_server_gives_the_facts_of_its_model_after_one_token(wait, told: list[str]):
    server = Server()
    assert wait(server) == ModelFacts("tensorrt_llm_bls", takes_ids=False, decoupled=True, ensemble=False)
    assert server.probed == ["tensorrt_llm_bls"]
    assert told == []


def test_what_it_is_doing_is_told_once_each(wait, told: list[str]):
    wait(Server(["starting", "starting", "loading models", "loading models"]))
    assert told == ["waiting for profile lab: starting", "waiting for profile lab: loading models"]


@pytest.mark.parametrize("error", [ConnectFailed("nobody there"), EngineUnavailable("the engine\ndied")])
def test_a_server_that_says_it_is_ready_but_gives_no_token_is_waited_for(
    wait, told: list[str], error: NaiadError
):
    server = Server(probes=[error, error])
    wait(server)
    assert len(server.probed) == 3
    assert told == [f"waiting for profile lab: {' '.join(error.message.split())}"]


@pytest.mark.parametrize("error", [ModelNotFound("no such model"), InvalidArgument("what is text_input?")])
def test_a_model_that_a_ready_server_refuses_is_an_error_at_once(wait, error: NaiadError):
    said = f"tensorrt_llm_bls on profile lab cannot be measured: {error.message}"
    with pytest.raises(PerfError) as refused:
        wait(Server(probes=[error]))
    assert str(refused.value) == said


def test_the_same_refusal_of_a_server_that_still_starts_is_waited_for(wait, told: list[str]):
    server = Server(probes=[ModelNotFound("no such model")])
    server.script.ready = False
    wait(server)
    assert told == ["waiting for profile lab: not ready"]


def test_waiting_has_an_end_that_says_what_it_waited_for(wait, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench_server, "HEALTH_LIMIT_S", 0.0)
    with pytest.raises(PerfError, match="profile lab did not become healthy within 0 s: loading"):
        wait(Server(["loading"] * 5))


def test_servers_are_one_a_profile_and_one_an_address(tmp_path, monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    start = OwnServer.__init__

    def counted(server: OwnServer, profile: str, *rest: Any) -> None:
        made.append(profile)
        start(server, profile, *rest)

    monkeypatch.setattr(OwnServer, "__init__", counted)
    there = ExistingServer(grpc="h:1", http="h:2")
    subjects = [
        Subject(name="a", profile="x"),
        Subject(name="b", profile="x", model="ensemble"),
        Subject(name="c", profile="y"),
        Subject(name="d", server=there),
        Subject(name="e", server=ExistingServer(grpc="h:1", http="h:2")),
    ]
    servers = Servers(subjects, tmp_path, tmp_path)
    found = [servers.of(subject) for subject in subjects]
    assert found[0] is found[1]
    assert found[3] is found[4]
    assert len({id(server) for server in found}) == 3
    assert made == ["x", "y"]
    assert [type(server) for server in found] == [OwnServer, OwnServer, OwnServer, GivenServer, GivenServer]
    assert found[0].grpc_url != found[2].grpc_url
    for server in found:
        server.stop(politely=True)


def test_every_server_is_stopped_though_one_fails_to(tmp_path):
    subjects = [Subject(name=name, server=ExistingServer(grpc=f"{name}:1", http="h:2")) for name in "abc"]
    servers = Servers(subjects, tmp_path, tmp_path)
    stopped: list[str] = []

    def stopping(name: str) -> Callable[..., None]:
        def stop(*, politely: bool) -> None:
            stopped.append(f"{name} {politely}")
            if name == "b":
                raise RuntimeError("it would not")

        return stop

    for subject in subjects:
        server = servers.of(subject)
        server.triton.close()
        server.start = lambda: None  # type: ignore[method-assign]
        server.stop = stopping(subject.name)  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="it would not"), servers:
        pass
    assert sorted(stopped) == ["a True", "b True", "c True"]
    stopped.clear()
    with pytest.raises(RuntimeError, match="it would not"), servers:
        raise KeyError("interrupted")
    assert sorted(stopped) == ["a False", "b False", "c False"]


def test_a_given_server_that_never_answers_is_given_up_soon(monkeypatch):
    """One at a wrong address would otherwise be waited for as long as a large engine takes to load."""
    monkeypatch.setattr(bench_server, "_ANSWER_LIMIT_S", 0.5)
    server = GivenServer(ExistingServer(grpc="127.0.0.1:1", http="127.0.0.1:1"))
    with pytest.raises(PerfError, match=r"the server at 127\.0\.0\.1:1 does not answer: .*onnect"):
        server.start()
    server.stop(politely=False)
