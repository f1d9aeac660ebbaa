"""The one error tree of Naiad.

    NaiadError
    ├── InvalidArgument        the request is malformed: fix it, do not retry
    │   └── PromptTooLong      prompt, or prompt + output, exceeds the model's limits
    ├── Unsupported            well-formed, but this deployment cannot do it (named tensor or parameter)
    ├── Overloaded             a queue is full: retry later
    ├── Draining               the server is shutting down: retry elsewhere or later
    ├── EngineUnavailable      the engine died or failed: retry
    ├── EngineStalled          no token within the stated limit
    ├── DeadlineExceeded       the request's own time limit passed
    ├── Cancelled              the caller, or a stop request, ended it
    └── InternalError          anything else; carries an incident id, the cause goes to the log only

Triton loses the status code of an error that a decoupled model sends over a gRPC stream (only the text
arrives), so the stable code also travels inside the text: ``[QUEUE_FULL] the message``. `format_error`
writes that form and `parse_error` reads it; the client rebuilds the same exception from it.
"""

from __future__ import annotations

import re
import secrets
from typing import ClassVar

__all__ = [
    "Cancelled",
    "DeadlineExceeded",
    "Draining",
    "EngineStalled",
    "EngineUnavailable",
    "InternalError",
    "InvalidArgument",
    "NaiadError",
    "Overloaded",
    "PromptTooLong",
    "Unsupported",
    "format_error",
    "parse_error",
]


class NaiadError(Exception):
    """Base of every error a caller may see.

    Attributes:
        code: stable, closed-set code; also the ``reason`` label of the failure metric.
        grpc_status: name of the gRPC status that fits best.
        retryable: whether the same request may succeed later without a change.
        message: text that is safe to show: no paths, no tracebacks, no prompt text.
        partial: whether part of the answer was already delivered before the error.
    """

    code: ClassVar[str] = "INTERNAL"
    grpc_status: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, partial: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.partial = partial


class InvalidArgument(NaiadError):
    """The request is malformed; the message names the tensor or parameter and the allowed range."""

    code = "INVALID_ARGUMENT"
    grpc_status = "INVALID_ARGUMENT"


class PromptTooLong(InvalidArgument):
    """Prompt, or prompt plus requested output, exceeds what the model serves; both numbers are named."""

    code = "PROMPT_TOO_LONG"


class Unsupported(NaiadError):
    """A well-formed request that this engine or profile cannot serve; the tensor is named."""

    code = "UNSUPPORTED"
    grpc_status = "UNIMPLEMENTED"


class Overloaded(NaiadError):
    """A bounded queue is full; no engine time was spent."""

    code = "QUEUE_FULL"
    grpc_status = "UNAVAILABLE"
    retryable = True


class Draining(NaiadError):
    """The server is finishing its live requests and takes no new ones."""

    code = "DRAINING"
    grpc_status = "UNAVAILABLE"
    retryable = True


class EngineUnavailable(NaiadError):
    """The engine, or a stage before it, died or refused to work."""

    code = "ENGINE_UNAVAILABLE"
    grpc_status = "UNAVAILABLE"
    retryable = True


class EngineStalled(NaiadError):
    """No token arrived within the first-token or idle limit."""

    code = "ENGINE_STALLED"
    grpc_status = "UNAVAILABLE"
    retryable = True


class DeadlineExceeded(NaiadError):
    """The time the caller allowed for the whole request is over."""

    code = "DEADLINE_EXCEEDED"
    grpc_status = "DEADLINE_EXCEEDED"


class Cancelled(NaiadError):
    """The caller went away or a stop request named this request."""

    code = "CANCELLED"
    grpc_status = "CANCELLED"


class InternalError(NaiadError):
    """Something unexpected; only the incident id leaves the process."""

    def __init__(self, incident: str | None = None, *, partial: bool = False) -> None:
        self.incident = incident or secrets.token_hex(4)
        super().__init__(
            f"internal error, incident {self.incident}; the server's log has the cause", partial=partial
        )


_TREE: dict[str, type[NaiadError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument, PromptTooLong, Unsupported, Overloaded, Draining,
        EngineUnavailable, EngineStalled, DeadlineExceeded, Cancelled,
    )
}  # fmt: skip

_PARTIAL = " (partial answer was delivered)"
_FORM = re.compile(r"\[([A-Z_]+)\] (.*)", re.DOTALL)
_INCIDENT = re.compile(r"incident ([0-9a-f]{8})")


def format_error(error: NaiadError) -> str:
    """Return the in-band form ``[CODE] message``, marking a partial answer."""
    return f"[{error.code}] {error.message}{_PARTIAL if error.partial else ''}"


def parse_error(text: str) -> NaiadError | None:
    """Rebuild the error that `format_error` wrote anywhere in `text`; None when there is none.

    An unknown code (a newer server) becomes a plain `NaiadError` with the text kept.
    """
    found = _FORM.search(text)
    if found is None:
        return None
    code, message = found.groups()
    partial = message.endswith(_PARTIAL)
    message = message.removesuffix(_PARTIAL)
    if code == InternalError.code:
        incident = _INCIDENT.search(message)
        return InternalError(incident.group(1) if incident else "unknown", partial=partial)
    kind = _TREE.get(code)
    return kind(message, partial=partial) if kind else NaiadError(f"[{code}] {message}", partial=partial)
