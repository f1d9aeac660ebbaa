"""The supervisor on a real tritonserver with a minimal repository: faults, restarts, drains, leftovers."""

from __future__ import annotations

import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.server.canary import text_probe
from naiad.server.config import CanaryPolicy, RestartPolicy, ServeConfig
from naiad.server.errors import StartError
from naiad.server.shared_memory import SHARED_MEMORY, find_stubs
from naiad.server.state import Phase, ServerState, read_state
from tests.harness.minimal_repository import write_minimal_repository
from tests.harness.repository import ROOT
from tests.harness.server import LiveServer, free_ports, serving, wait_until

# Three times what a loaded machine of two cores was seen to take.
RESTART_S = 45.0
CANARY = CanaryPolicy(model="echo", period_s=0.2, timeout_s=2.0)

PROGRAM = """
import json, logging, sys
from pathlib import Path
from naiad.server.config import CanaryPolicy, ServeConfig
from naiad.server.supervisor import Supervisor
from naiad.server.tritonserver import locate_or_install

logging.basicConfig(level=logging.INFO)
repository, artifacts, installed, http, grpc, metrics, limit_s = sys.argv[1:]
config = ServeConfig(
    Path(repository), Path(artifacts), http_port=int(http), grpc_port=int(grpc), metrics_port=int(metrics),
    canary=CanaryPolicy(model="echo"), drain_limit_s=float(limit_s),
)
sys.exit(Supervisor(config, installation=locate_or_install(Path(installed))).run())
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write_minimal_repository(tmp_path / "models")


@contextmanager
def minimal(repository: Path, artifacts: Path, **settings: object) -> Iterator[LiveServer]:
    with serving(repository, artifacts, **{"canary": CANARY, **settings}) as server:
        yield server


def state(server: LiveServer) -> ServerState:
    return read_state(server.config.state_path)


def server_pid(server: LiveServer) -> int:
    pid = state(server).server_pid
    assert pid is not None
    return pid


@dataclass
class Program:
    """A supervisor in a process of its own, for signals."""

    process: subprocess.Popen[str]
    config: ServeConfig

    @property
    def phase(self) -> Phase | None:
        path = self.config.state_path
        return read_state(path).phase if path.exists() else None

    @property
    def server_pid(self) -> int:
        pid = read_state(self.config.state_path).server_pid
        assert pid is not None
        return pid


@contextmanager
def program(repository: Path, artifacts: Path, *, limit_s: float = 20.0) -> Iterator[Program]:
    http, grpc_port, metrics = free_ports(3)
    config = ServeConfig(repository, artifacts, http_port=http, grpc_port=grpc_port, metrics_port=metrics)
    arguments = [
        str(a) for a in (repository, artifacts, ROOT / ".artifacts", http, grpc_port, metrics, limit_s)
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    running = Program(process, config)
    try:
        yield running
    finally:
        process.kill()
        process.communicate()
        wait_until(lambda: not leftovers(config), 10, "everything of the program is gone")


def await_ready(running: Program) -> None:
    wait_until(
        lambda: running.phase is Phase.READY or running.process.poll() is not None,
        RESTART_S,
        "program is ready",
    )
    assert running.process.poll() is None, running.process.communicate()[1]


def stub_pids(config: ServeConfig) -> list[int]:
    key = f"_{config.http_port}_"
    return [
        s.process.pid
        for s in find_stubs()
        if s.region.startswith(config.repository_prefix) and key in s.region
    ]


def regions(config: ServeConfig) -> list[str]:
    key = f"_{config.http_port}_"
    return [p.name for p in SHARED_MEMORY.glob(f"{config.repository_prefix}*") if key in p.name]


def leftovers(config: ServeConfig) -> list[object]:
    return [*stub_pids(config), *regions(config)]


def answers(config: ServeConfig) -> bool:
    return text_probe(f"127.0.0.1:{config.grpc_port}", CANARY)().answered


@dataclass
class Stream:
    """One request to `slow` on a stream of its own."""

    config: ServeConfig
    count: int
    delay_s: float
    half_close: bool = True
    received: list[str | bytes] = field(default_factory=list)
    error: grpc.RpcError | None = None
    first: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        request = service_pb2.ModelInferRequest(model_name="slow")
        for name, datatype, raw in (
            ("count", "INT32", struct.pack("<i", self.count)),
            ("delay_s", "FP32", struct.pack("<f", self.delay_s)),
        ):
            request.inputs.add(name=name, datatype=datatype, shape=[1])
            request.raw_input_contents.append(raw)
        self.requests: queue.SimpleQueue[service_pb2.ModelInferRequest | None] = queue.SimpleQueue()
        self.requests.put(request)
        if self.half_close:
            self.requests.put(None)
        threading.Thread(target=self._read, daemon=True).start()
        assert self.first.wait(10)

    def _read(self) -> None:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{self.config.grpc_port}") as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                for message in stub.ModelStreamInfer(iter(self.requests.get, None)):
                    self.received.append(
                        message.error_message or message.infer_response.raw_output_contents[0][4:]
                    )
                    self.first.set()
        except grpc.RpcError as error:
            self.error = error
        self.ended.set()


def test_a_server_is_ready_only_after_a_real_answer(repository: Path, tmp_path: Path) -> None:
    with minimal(repository, tmp_path / "a") as server:
        assert answers(server.config)
        assert state(server).ready
        assert {stub.model for stub in find_stubs(psutil.Process(server_pid(server)).children())} == {
            "echo",
            "slow",
        }
    assert state(server).phase is Phase.STOPPED
    assert leftovers(server.config) == []


def test_a_killed_model_process_turns_readiness_false_at_once_and_heals(
    repository: Path, tmp_path: Path
) -> None:
    with minimal(repository, tmp_path / "a") as server:
        old = server_pid(server)
        server.stub("slow").kill()
        wait_until(lambda: not state(server).ready, 1.0, "readiness turns false")
        wait_until(lambda: server.ready, RESTART_S, "the server answers again")
        assert answers(server.config)
        assert server_pid(server) != old
        assert state(server).restarts == 1
        assert len(stub_pids(server.config)) == 2
        assert len(regions(server.config)) == 2


def test_a_killed_tritonserver_takes_its_model_processes_along_and_heals(
    repository: Path, tmp_path: Path
) -> None:
    with minimal(repository, tmp_path / "a") as server:
        orphans, old_regions = stub_pids(server.config), regions(server.config)
        os.kill(server_pid(server), signal.SIGKILL)
        wait_until(
            lambda: not set(orphans) & set(psutil.pids()), 5.0, "no model process outlives tritonserver"
        )
        wait_until(lambda: server.ready, RESTART_S, "the server answers again")
        assert not set(old_regions) & set(regions(server.config))
        assert answers(server.config)


def test_a_stopped_model_process_fails_canaries_and_is_replaced(repository: Path, tmp_path: Path) -> None:
    policy = CanaryPolicy(model="echo", period_s=0.1, timeout_s=0.5, failures=2)
    with minimal(repository, tmp_path / "a", canary=policy, fault_drain_s=0.2) as server:
        server.stub("echo").suspend()
        wait_until(lambda: not server.ready, 5.0, "readiness turns false")
        wait_until(lambda: server.ready, RESTART_S, "the server answers again")
        assert answers(server.config)
        assert state(server).restarts == 1


def test_a_server_that_keeps_failing_is_given_up_with_the_reason(repository: Path, tmp_path: Path) -> None:
    with minimal(repository, tmp_path / "a", restart=RestartPolicy(max_restarts=0)) as server:
        server.stub("echo").kill()
        wait_until(lambda: state(server).phase is Phase.STOPPED, RESTART_S, "the supervisor gives up")
        assert "giving up: more than 0 restarts" in state(server).reason
        assert "of model echo died" in state(server).reason
        assert leftovers(server.config) == []


def test_a_model_that_fails_to_load_ends_the_start_with_its_cause(repository: Path, tmp_path: Path) -> None:
    model = repository / "slow" / "1" / "model.py"
    model.write_text(
        model.read_text().replace("self.threads = []", "raise RuntimeError('no tokenizer here')")
    )
    with pytest.raises(StartError, match="no tokenizer here"), minimal(repository, tmp_path / "a"):
        pass


def test_a_model_process_that_dies_while_loading_ends_the_start(repository: Path, tmp_path: Path) -> None:
    model = repository / "slow" / "1" / "model.py"
    model.write_text(model.read_text().replace("self.threads = []", "import os; os._exit(3)"))
    with pytest.raises(StartError, match="slow"), minimal(repository, tmp_path / "a"):
        pass


def test_two_servers_of_one_repository_share_nothing(repository: Path, tmp_path: Path) -> None:
    with minimal(repository, tmp_path / "a") as one, minimal(repository, tmp_path / "a") as two:
        other = set(regions(two.config))
        one.stub("echo").kill()
        wait_until(lambda: not one.ready, 1.0, "the first notices")
        wait_until(lambda: one.ready, RESTART_S, "the first answers again")
        assert other == set(regions(two.config))
        assert answers(one.config)
        assert answers(two.config)
        assert state(two).restarts == 0


def test_sigterm_lets_a_live_stream_end_and_exits_with_zero(repository: Path, tmp_path: Path) -> None:
    with program(repository, tmp_path / "a") as running:
        await_ready(running)
        stream = Stream(running.config, count=8, delay_s=0.3)
        running.process.terminate()
        wait_until(lambda: running.phase is Phase.DRAINING, 1.0, "the state says draining")
        assert running.process.wait(timeout=30) == 0
        assert stream.ended.wait(5)
        assert stream.error is None
        assert stream.received == [str(index).encode() for index in range(8)]
        assert running.phase is Phase.STOPPED
        assert leftovers(running.config) == []


def test_the_drain_limit_ends_a_longer_stream_with_unavailable(repository: Path, tmp_path: Path) -> None:
    with program(repository, tmp_path / "a", limit_s=2) as running:
        await_ready(running)
        stream = Stream(running.config, count=1000, delay_s=0.2)
        started = time.monotonic()
        running.process.terminate()
        assert running.process.wait(timeout=30) == 1
        assert 2 <= time.monotonic() - started < 10
        assert stream.ended.wait(5)
        assert stream.error is not None
        assert stream.error.code() is grpc.StatusCode.UNAVAILABLE
        assert leftovers(running.config) == []


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(repository: Path, tmp_path: Path, second: signal.Signals) -> None:
    with program(repository, tmp_path / "a") as running:
        await_ready(running)
        Stream(running.config, count=1000, delay_s=0.2)
        running.process.terminate()
        wait_until(lambda: running.phase is Phase.DRAINING, 1.0, "the state says draining")
        running.process.send_signal(second)
        assert running.process.wait(timeout=3) == 1
        assert leftovers(running.config) == []


def test_sigterm_while_models_load_leaves_nothing(repository: Path, tmp_path: Path) -> None:
    model = repository / "slow" / "1" / "model.py"
    model.write_text(model.read_text().replace("self.threads = []", "time.sleep(60)"))
    with program(repository, tmp_path / "a") as running:
        wait_until(lambda: len(stub_pids(running.config)) == 2, RESTART_S, "both models load")
        running.process.terminate()
        assert running.process.wait(timeout=10) == 0
        assert leftovers(running.config) == []


def test_a_killed_supervisor_takes_everything_along(repository: Path, tmp_path: Path) -> None:
    with program(repository, tmp_path / "a") as running:
        await_ready(running)
        server = running.server_pid
        running.process.kill()
        running.process.wait()
        wait_until(lambda: not psutil.pid_exists(server), 3.0, "tritonserver ends with its supervisor")
        wait_until(lambda: not leftovers(running.config), 3.0, "no process and no region stays")
        assert running.phase is Phase.STOPPED
