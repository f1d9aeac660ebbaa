"""The responses of one request: in order, none after the end, and always an end.

A request that is left without a final response leaks in Triton 2.51 and keeps the server from shutting
down, so every path through the models ends in `finish`, `send(final=True)` or `fail`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils

from naiad.contract.errors import InternalError, NaiadError, format_error
from naiad.serving.tensor_inputs import Array
from naiad.triton.numpy_abi import make_tensor

__all__ = ["ResponseStream", "as_naiad_error", "error_response"]

_log = logging.getLogger(__name__)

_TRITON_CODES = {
    "INVALID_ARGUMENT": "INVALID_ARG",
    "UNIMPLEMENTED": "UNSUPPORTED",
    "UNAVAILABLE": "UNAVAILABLE",
    "CANCELLED": "CANCELLED",
    "INTERNAL": "INTERNAL",
    "DEADLINE_EXCEEDED": "UNAVAILABLE",  # Triton has no such code; the text carries ours
}


def as_naiad_error(error: Exception, doing: str) -> NaiadError:
    """Return the error itself when it is ours; else log it whole and return an `InternalError`."""
    if isinstance(error, NaiadError):
        return error
    internal = InternalError()
    _log.error("incident %s while %s", internal.incident, doing, exc_info=error)
    return internal


def error_response(error: NaiadError) -> Any:
    """Return a response that carries the error, its code in the text as well."""
    code = getattr(pb_utils.TritonError, _TRITON_CODES[error.grpc_status])
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(format_error(error), code))


class ResponseStream:
    """Sends the responses of one request from any thread; what comes after the end is dropped."""

    def __init__(self, request: Any) -> None:
        self._sender = request.get_response_sender()
        self._lock = threading.Lock()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the terminal message was sent."""
        return self._ended

    def is_cancelled(self) -> bool:
        """Whether the caller has gone away (asks the server).

        Under the lock of `_send`: Triton 2.51 dies of SIGSEGV when it is asked while, or after, the final
        response of the same request goes out.
        """
        with self._lock:
            return not self._ended and bool(self._sender.is_cancelled())

    def send(self, tensors: Mapping[str, Array], *, final: bool = False) -> None:
        """Send one response of the named output arrays."""
        response = pb_utils.InferenceResponse([make_tensor(name, array) for name, array in tensors.items()])
        self._send(response, final=final)

    def fail(self, error: NaiadError, *, final: bool = True) -> None:
        """Send the error; the terminal message unless `final` is false."""
        self._send(error_response(error), final=final)

    def finish(self) -> None:
        """Send the empty terminal message."""
        self._send(None, final=True)

    def _send(self, response: Any, *, final: bool) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = final
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0
            try:
                if response is None:
                    self._sender.send(flags=flags)
                else:
                    self._sender.send(response, flags=flags)
            except Exception as error:  # noqa: BLE001 - the sending thread serves other requests too
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """A response could not be sent, say for lack of shared memory; an error takes far less of it."""
        self._ended = True
        failure = error_response(as_naiad_error(error, "sending a response"))
        try:
            self._sender.send(failure, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception:  # noqa: BLE001 - after a failed final response the sender may be closed
            _log.exception("the request cannot be ended")
