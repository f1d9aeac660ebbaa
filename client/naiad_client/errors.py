"""Every error a caller of the client may see: the server's tree, and what only a client can notice.

    NaiadError                       retryable   partial
    ├── InvalidArgument              no          never          the request is malformed
    │   └── PromptTooLong            no          never
    ├── Unsupported                  no          never
    ├── Overloaded                   yes         never
    ├── Draining                     yes         never
    ├── EngineUnavailable            yes         when cut mid-answer
    ├── EngineStalled                yes         when cut mid-answer    the server's own watchdog
    │   ├── FirstTokenTimeout *      yes         never          nothing arrived within `first_token_s`
    │   └── IdleTimeout *            yes         always         the answer stopped for `between_tokens_s`
    ├── DeadlineExceeded             no          when cut mid-answer
    │   └── TotalTimeout *           no          when cut mid-answer    `total_s` is over
    ├── Cancelled                    no          when cut mid-answer    ended by someone else than this caller
    ├── ConnectFailed *              yes         never          no server answers at the address
    ├── ModelNotFound *              no          never          the server does not know the model
    ├── IncompleteStream *           yes         when cut mid-answer    the stream ended without a final flag
    └── InternalError                no          when cut mid-answer

Marked ``*``: made by the client, from what it sees on the wire or on its clock. "Retryable" says that the
same request may succeed later; the client itself repeats a request only before its first token
(`limits.Retries`), and never once a time limit of the caller is used up. `NaiadError.partial` tells, for the
error at hand, whether part of the answer was handed out before.
"""

from __future__ import annotations

from naiad.contract.errors import (
    Cancelled,
    DeadlineExceeded,
    Draining,
    EngineStalled,
    EngineUnavailable,
    InternalError,
    InvalidArgument,
    NaiadError,
    Overloaded,
    PromptTooLong,
    Unsupported,
)

__all__ = [
    "Cancelled",
    "ConnectFailed",
    "DeadlineExceeded",
    "Draining",
    "EngineStalled",
    "EngineUnavailable",
    "FirstTokenTimeout",
    "IdleTimeout",
    "IncompleteStream",
    "InternalError",
    "InvalidArgument",
    "ModelNotFound",
    "NaiadError",
    "Overloaded",
    "PromptTooLong",
    "TotalTimeout",
    "Unsupported",
]


class ConnectFailed(NaiadError):
    """Nothing that speaks gRPC answers at the address. Retryable; never partial."""

    code = "CONNECT_FAILED"
    grpc_status = "UNAVAILABLE"
    retryable = True


class ModelNotFound(NaiadError):
    """The server runs but has no model of that name or version. Not retryable; never partial."""

    code = "MODEL_NOT_FOUND"
    grpc_status = "NOT_FOUND"


class IncompleteStream(NaiadError):
    """The stream ended as if well, but without the final flag: what arrived is not a whole answer.

    Retryable; partial when any part of the answer had arrived.
    """

    code = "INCOMPLETE_STREAM"
    grpc_status = "UNAVAILABLE"
    retryable = True


class FirstTokenTimeout(EngineStalled):
    """No token within `Timeouts.first_token_s`, all attempts together. Retryable; never partial."""

    code = "FIRST_TOKEN_TIMEOUT"


class IdleTimeout(EngineStalled):
    """The answer began and then nothing came for `Timeouts.between_tokens_s`. Retryable; always partial."""

    code = "IDLE_TIMEOUT"


class TotalTimeout(DeadlineExceeded):
    """`Timeouts.total_s` is over. Not retryable as it stands; partial when any of the answer came."""

    code = "TOTAL_TIMEOUT"
