"""A real, supervised tritonserver for tests: free ports, its own artifacts folder, ended with the test."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from naiad.server.config import ServeConfig
from naiad.server.state import Phase
from naiad.server.supervisor import Supervisor
from naiad.server.tritonserver import locate_or_install
from tests.harness.repository import ROOT

START_LIMIT_S = 120.0


def wait_until(condition: Callable[[], object], limit_s: float, what: str) -> None:
    """Poll until `condition` holds; fail the test by name when it does not within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.01)


def free_ports(count: int) -> list[int]:
    """Return TCP ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for unbound in sockets:
        unbound.bind(("127.0.0.1", 0))
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports


@dataclass(frozen=True)
class LiveServer:
    """A running server."""

    config: ServeConfig
    supervisor: Supervisor

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.config.grpc_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.config.http_port}"

    @property
    def ready(self) -> bool:
        state = self.supervisor.state
        return state is not None and state.phase is Phase.READY

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of one series, the first whose labels include those given."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.config.metrics_port}/metrics", timeout=10
        ) as reply:
            text = reply.read().decode()
        for line in text.splitlines():
            found = re.fullmatch(r"([a-zA-Z0-9_:]+)\{(.*)\} (\S+)", line)
            if found and found.group(1) == name:
                have = dict(re.findall(r'(\w+)="([^"]*)"', found.group(2)))
                if labels.items() <= have.items():
                    return float(found.group(3))
        raise AssertionError(f"no series {name} {labels} in the metrics")

    def active(self) -> float:
        """Requests that the engine has, waiting or running."""
        return self.metric("nv_trt_llm_request_metrics", request_type="active")

    def stub(self, model: str) -> psutil.Process:
        """Return the process that runs a model."""
        state = self.supervisor.state
        assert state is not None
        assert state.server_pid is not None
        for process in psutil.Process(state.server_pid).children(recursive=True):
            if any(argument.endswith(f"/{model}/1/model.py") for argument in process.cmdline()):
                return process
        raise AssertionError(f"no process of model {model}")


@contextmanager
def serving(repository: Path, artifacts: Path, **settings: object) -> Iterator[LiveServer]:
    """Serve `repository` for the length of the block; `settings` are fields of `ServeConfig`."""
    http, grpc, metrics = free_ports(3)
    config = ServeConfig(
        model_repository=repository, artifacts=artifacts, http_port=http, grpc_port=grpc, metrics_port=metrics
    )
    config = replace(config, **settings)  # type: ignore[arg-type]
    supervisor = Supervisor(config, installation=locate_or_install(ROOT / ".artifacts"))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="supervisor")
    thread.start()
    server = LiveServer(config, supervisor)
    try:
        wait_until(lambda: server.ready or not thread.is_alive(), START_LIMIT_S, "the server is ready")
        if failures:
            raise failures[0]
        yield server
    finally:
        supervisor.request_stop()
        supervisor.request_stop()
        thread.join(timeout=60)
