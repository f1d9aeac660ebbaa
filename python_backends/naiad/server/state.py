"""The state file: what a supervised server is doing right now, for `naiad health`, probes and tests."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path

import psutil

from naiad.server.errors import ServerError

__all__ = ["Phase", "ServerState", "read_state", "write_state"]


class Phase(Enum):
    """What the server is doing; only READY means that a request would succeed now."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServerState:
    """One state.

    Attributes:
        phase: see `Phase`.
        reason: why, one line.
        pid: the supervisor's process.
        server_pid: tritonserver's process; None while there is none.
        address, http_port, grpc_port, metrics_port: where it listens.
        restarts: restarts after faults since the supervisor started.
        since_unix_s: when this phase began.
    """

    phase: Phase
    reason: str
    pid: int
    server_pid: int | None
    address: str
    http_port: int
    grpc_port: int
    metrics_port: int
    restarts: int
    since_unix_s: float

    @property
    def ready(self) -> bool:
        """Whether a request would succeed now."""
        return self.phase is Phase.READY


def write_state(path: Path, state: ServerState) -> None:
    """Replace the file at `path` whole: a reader sees the old state or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {**asdict(state), "phase": state.phase.value, "ready": state.ready}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(fields, indent=1) + "\n")
    draft.replace(path)


def read_state(path: Path) -> ServerState:
    """Read a state file; a state whose supervisor is gone reads as STOPPED.

    Raises:
        ServerError: no such file, or it is not a state file.
    """
    try:
        fields = json.loads(path.read_text())
        fields.pop("ready")
        state = ServerState(**{**fields, "phase": Phase(fields["phase"])})
    except FileNotFoundError as error:
        raise ServerError(f"no server has written {path}", "start one with `naiad serve`") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ServerError(
            f"{path} is not a state file ({error})", "remove it; a server writes it anew"
        ) from error
    if state.phase is not Phase.STOPPED and not psutil.pid_exists(state.pid):
        reason = f"supervisor {state.pid} is gone without a word (was {state.phase.value}: {state.reason})"
        return replace(state, phase=Phase.STOPPED, reason=reason, server_pid=None)
    return state
