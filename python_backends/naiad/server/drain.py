"""Ends a server without cutting requests short.

On SIGTERM Triton 2.51 closes HTTP at once and answers new gRPC requests, and the models' own calls to each
other, with NOT_FOUND "has no available versions". Open streams go on to their end, but one that is merely
open, with nothing in flight, keeps the server from exiting until its exit timeout. So a drain has two parts:
first the models are told (NAIAD_DRAIN_FILE) to refuse new requests as UNAVAILABLE while those accepted still
find every model; then, when the engines have nothing in flight, SIGTERM. A server whose engines do not say
what they have in flight gets the SIGTERM at once, and Triton waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from naiad.server.endpoints import Endpoints
from naiad.server.processes import TritonProcess

__all__ = ["DrainLimits", "drain", "wait_for_exit"]

_POLL_S = 0.05
_UNLOAD_S = 3.0  # Triton takes 1 to 2.5 s to unload models at rest; new requests meanwhile get NOT_FOUND


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """Seconds: for everything, and without a request in flight until the server counts as at rest."""

    total_s: float
    settle_s: float


def drain(
    server: TritonProcess,
    endpoints: Endpoints,
    drain_file: Path,
    limits: DrainLimits,
    aborted: Callable[[], bool],
) -> bool:
    """Let live requests end, then stop the server; return whether none was cut.

    The caller kills what is left. `aborted` ends the waiting at once.
    """
    deadline_s = time.monotonic() + limits.total_s
    drain_file.parent.mkdir(parents=True, exist_ok=True)
    drain_file.touch()
    at_rest = _wait_for_rest(server, endpoints, deadline_s, limits.settle_s, aborted)
    server.terminate()
    left_s = deadline_s - time.monotonic()
    exited = wait_for_exit(server, min(left_s, _UNLOAD_S) if at_rest else left_s, aborted)
    return at_rest or (exited and server.exit_status == 0)


def wait_for_exit(server: TritonProcess, limit_s: float, aborted: Callable[[], bool]) -> bool:
    """Wait until tritonserver has ended; False when it still runs at the limit."""
    deadline_s = time.monotonic() + limit_s
    while server.exit_status is None:
        if aborted() or time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _wait_for_rest(
    server: TritonProcess,
    endpoints: Endpoints,
    deadline_s: float,
    settle_s: float,
    aborted: Callable[[], bool],
) -> bool:
    """Wait until the engines had nothing in flight for `settle_s`; False when that is not known to be so."""
    busy_s = time.monotonic()
    while (now_s := time.monotonic()) < deadline_s and server.exit_status is None and not aborted():
        in_flight = endpoints.in_flight()
        if in_flight:
            busy_s = time.monotonic()
        elif now_s - busy_s >= settle_s:
            return in_flight is not None
        time.sleep(_POLL_S)
    return False
