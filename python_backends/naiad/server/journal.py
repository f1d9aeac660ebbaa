"""What happens to a server, one line an event: to the log, and as its state to the state file."""

from __future__ import annotations

import logging
import os
import time

from naiad.server.config import ServeConfig
from naiad.server.state import Phase, ServerState, write_state

__all__ = ["Journal"]

_log = logging.getLogger(__name__)


class Journal:
    """Keeps the current state of one server.

    Attributes:
        state: the state last entered; None before the first.
        restarts: restarts after faults so far; part of each state.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self.state: ServerState | None = None
        self.restarts = 0

    @property
    def phase(self) -> Phase | None:
        """The phase of the state last entered."""
        return self.state.phase if self.state else None

    def enter(self, phase: Phase, reason: str, server_pid: int | None = None) -> None:
        """Log and write a new state; a file that cannot be written does not stop a server."""
        config = self._config
        self.state = ServerState(
            phase=phase,
            reason=reason,
            pid=os.getpid(),
            server_pid=server_pid,
            address=config.address,
            http_port=config.http_port,
            grpc_port=config.grpc_port,
            metrics_port=config.metrics_port,
            restarts=self.restarts,
            since_unix_s=time.time(),
        )
        try:
            write_state(config.state_path, self.state)
        except OSError as error:
            _log.warning("cannot write %s (%s); the server goes on", config.state_path, error)
        level = logging.WARNING if phase is Phase.DEGRADED else logging.INFO
        _log.log(level, "%s: %s", phase.value, reason)
