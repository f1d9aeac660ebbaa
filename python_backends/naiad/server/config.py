"""What a supervised server is asked to be."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CanaryPolicy", "RestartPolicy", "ServeConfig"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """After a fault the server is restarted at once, then after growing pauses, then not again.

    Attributes:
        max_restarts: restarts allowed within `window_s`; one more and the supervisor gives up.
        window_s: seconds that a restart is remembered.
        first_pause_s: pause before the second restart in the window; doubles with each further one.
        max_pause_s: upper bound of a pause.
    """

    max_restarts: int = 5
    window_s: float = 300.0
    first_pause_s: float = 1.0
    max_pause_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CanaryPolicy:
    """The real request that proves readiness, because Triton's own health endpoint does not.

    Attributes:
        model: a model that takes `text_input` BYTES[1,1] and `max_tokens` INT32[1,1].
        text: the prompt.
        max_tokens: tokens asked for.
        period_s: seconds between two requests.
        timeout_s: seconds one request may take.
        failures: failures in a row that count as a dead server.
    """

    model: str = "tensorrt_llm_bls"
    text: str = "hi"
    max_tokens: int = 1
    period_s: float = 5.0
    timeout_s: float = 10.0
    failures: int = 3


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """One server: what it serves, where it listens, how it ends and restarts.

    Attributes:
        model_repository: Triton model repository.
        artifacts: folder for the installed tritonserver, `run/` (state) and `logs/`.
        address: address all three ports listen on.
        http_port, grpc_port, metrics_port: TCP ports.
        profile: name of the models' configuration (`configs/<profile>.pbtxt`); None: `config.pbtxt`.
        models: load exactly these; empty: every model of the repository.
        model_dir: overrides the models' own model directories (NAIAD_MODEL_DIR).
        triton_flags: further flags for tritonserver, passed as they are and last, so they win.
        canary: None switches the canary off: readiness is then what Triton says.
        start_limit_s: seconds all models may take to load.
        canary_start_limit_s: seconds from then to the first canary's answer.
        drain_limit_s: seconds live requests may take to end after SIGTERM.
        fault_drain_s: the same after a fault, when most of them cannot end any more.
        settle_s: seconds without a request in flight that count as drained.
        restart: when to restart and when to give up.
        poll_s: seconds between two looks at the processes.
        shm_default_bytes: shared memory each model starts with.
        stub_timeout_s: seconds a model may take to load.
        verbose: print tritonserver's whole output, not only errors.
    """

    model_repository: Path
    artifacts: Path = Path(".artifacts")
    address: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    profile: str | None = None
    models: tuple[str, ...] = ()
    model_dir: Path | None = None
    triton_flags: tuple[str, ...] = ()
    canary: CanaryPolicy | None = field(default_factory=CanaryPolicy)
    start_limit_s: float = 600.0
    canary_start_limit_s: float = 120.0
    drain_limit_s: float = 30.0
    settle_s: float = 0.5
    fault_drain_s: float = 3.0
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    poll_s: float = 0.25
    shm_default_bytes: int = 1 << 20
    stub_timeout_s: int = 300
    verbose: bool = False

    @property
    def name(self) -> str:
        """Name of this server's state, drain and log files: one server an HTTP port."""
        return f"serve-{self.http_port}"

    @property
    def state_path(self) -> Path:
        """The state file, see `naiad.server.state`."""
        return self.artifacts / "run" / f"{self.name}.json"

    @property
    def drain_path(self) -> Path:
        """Exists while the server drains: models that see it refuse new requests (NAIAD_DRAIN_FILE)."""
        return self.artifacts / "run" / f"{self.name}.drain"

    @property
    def log_path(self) -> Path:
        """Tritonserver's output."""
        return self.artifacts / "logs" / f"{self.name}.log"

    @property
    def local_address(self) -> str:
        """Address to reach the server at from this machine, as it stands in a URL."""
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)  # noqa: S104
        return f"[{reachable}]" if ":" in reachable else reachable

    @property
    def repository_prefix(self) -> str:
        """Prefix of every shared memory region of this repository's servers in this PID namespace.

        The namespace is in it because containers may share /dev/shm without seeing each other's processes.
        """
        namespace = os.stat("/proc/self/ns/pid").st_ino
        key = f"{self.model_repository.resolve()}\0{namespace}\0{os.getuid()}"
        return f"naiad_{hashlib.sha256(key.encode()).hexdigest()[:10]}_"
