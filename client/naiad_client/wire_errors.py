"""Turn what arrives on the wire (error texts, gRPC statuses) into the error tree.

A decoupled model's error reaches the client as text only, so the text decides first: Naiad's own ``[CODE]
message``, then the sentences of Triton's core and Python backend that have a fixed meaning, then the gRPC
status.
"""

from __future__ import annotations

import re

from naiad.contract.errors import parse_error
from naiad_client.errors import (
    Cancelled,
    ConnectFailed,
    DeadlineExceeded,
    Draining,
    EngineUnavailable,
    InvalidArgument,
    ModelNotFound,
    NaiadError,
    Overloaded,
    TotalTimeout,
    Unsupported,
)

__all__ = ["error_from_status", "error_from_text"]

_TRITON_SAYS: tuple[tuple[re.Pattern[str], type[NaiadError]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"unknown model.* is not found", ModelNotFound),
        (r"unknown model.* has no available versions", EngineUnavailable),
        (r"is not at ready state|is not ready\b|server not ready", EngineUnavailable),
        (r"stub process .*(is )?not healthy|stub process .*(died|exited|terminated)", EngineUnavailable),
        (r"exceeds maximum queue size", Overloaded),
        (r"request timeout expired", DeadlineExceeded),
        (r"server is (stopping|exiting)|stopped accepting new inference requests", Draining),
        (r"request (was )?cancell?ed", Cancelled),
        (r"doesn't support models with decoupled", Unsupported),
        (
            r"unexpected inference (input|output)|expected \d+ inputs? but got|data-type is|unexpected shape"
            r"|batch[- ]size must be|missing input|expects? .* input",
            InvalidArgument,
        ),
    )
)
_PYTHON_TRACE = re.compile(r"\n+At:\n.*", re.DOTALL)  # the Python backend appends file names of the server
_PATH_IN_STUB = re.compile(r"stub process '[^']*'", re.IGNORECASE)
_NO_CONNECTION = re.compile(
    r"failed to connect|errors resolving|DNS resolution failed"
    r"|Received http2 header with status|http1\.x server",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"message larger than max", re.IGNORECASE)

_BY_STATUS: dict[str, type[NaiadError]] = {
    "ABORTED": EngineUnavailable,
    "CANCELLED": Cancelled,
    "DEADLINE_EXCEEDED": TotalTimeout,
    "FAILED_PRECONDITION": InvalidArgument,
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": ModelNotFound,
    "OUT_OF_RANGE": InvalidArgument,
    "RESOURCE_EXHAUSTED": Overloaded,
    "UNAVAILABLE": EngineUnavailable,
    "UNIMPLEMENTED": Unsupported,
}


def error_from_text(text: str) -> NaiadError:
    """Return the error that `text`, an in-band ``error_message``, stands for.

    A text of unknown meaning becomes a plain `NaiadError` (code INTERNAL) that keeps it.
    """
    return _known(text) or NaiadError(_safe(text))


def error_from_status(status: str, details: str, *, address: str) -> NaiadError:
    """Return the error for a failed RPC.

    Args:
        status: name of the gRPC status, for example ``UNAVAILABLE``.
        details: the text that came with it.
        address: where the RPC went, for the message of `ConnectFailed`.
    """
    if status != "INVALID_ARGUMENT" and _NO_CONNECTION.search(details):
        return ConnectFailed(f"no Triton gRPC server answers at {address} ({_last_cause(details)})")
    if _TOO_LARGE.search(details):
        return InvalidArgument(f"a message is too large for the connection: {details}")
    known = _known(details)
    if known is not None:
        return known
    kind = _BY_STATUS.get(status, NaiadError)
    return kind(_safe(details) or f"the call ended with gRPC status {status}")


def _known(text: str) -> NaiadError | None:
    bare = _PYTHON_TRACE.sub("", text)
    naiad = parse_error(bare)
    if naiad is not None and naiad.code != NaiadError.code:
        return naiad
    for pattern, kind in _TRITON_SAYS:
        if pattern.search(bare):
            return kind(_safe(bare))
    return naiad


def _safe(text: str) -> str:
    return _PATH_IN_STUB.sub("stub process", _PYTHON_TRACE.sub("", text)).strip()


def _last_cause(details: str) -> str:
    return details.rsplit("last error: ", 1)[-1].removeprefix("UNKNOWN: ").strip()
