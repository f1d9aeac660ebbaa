"""Calling another model of the same server from a model (business logic scripting).

Facts of Triton 2.51: the iterator of a decoupled call is synchronous, has no cancel, and never ends when the
called model's process dies; whoever iterates needs a watchdog, and a cancel is the contract's stop request.

A thread that waits in such an iterator takes the interpreter's lock back while it holds the iterator's own.
If the next response of that call arrives at that moment, while another thread begins a call, three threads
wait for each other and the process hangs (seen after some 20,000 calls of 64 responses, 32 at once). A call
with a single response never waits there: so calls name a token channel, which engines of ours use.

A thread of the stub's own forgets a call some time after its last response. If it is the last to do so, it
frees Python objects without the interpreter's lock, and the process dies sooner or later of SIGSEGV (seen
after some 5,000 calls). So ended calls are kept here until that thread has certainly been.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from naiad.contract.errors import EngineUnavailable, NaiadError, parse_error
from naiad.serving.tensor_inputs import Array
from naiad.triton.numpy_abi import make_tensor, read_tensor
from naiad.triton.requests import CHANNEL_ADDRESS, ERRORS_IN_BAND

__all__ = ["EngineModel"]

_log = logging.getLogger(__name__)
_KEPT_S = 10.0


class EngineModel:
    """The engine model.

    Args:
        name: of the Triton model.
        own: it is one of Naiad's engines, which knows token channels and tells errors in band.
    """

    def __init__(self, name: str, *, own: bool = True) -> None:
        self._name = name
        self._own = own
        self._ended: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()

    def generate(
        self,
        tensors: Mapping[str, Array],
        requested: Sequence[str],
        request_id: str,
        timeout_us: int,
        token_channel: str = "",
    ) -> Iterator[dict[str, Array]]:
        """Call the model; yield the output tensors of every response (possibly none in the last).

        With a `token_channel`, an engine that knows channels answers once, with `THROUGH_CHANNEL`.

        Raises:
            NaiadError: the model's own error, or EngineUnavailable when it cannot be called.
        """
        parameters = {ERRORS_IN_BAND: True, **({CHANNEL_ADDRESS: token_channel} if token_channel else {})}
        request = pb_utils.InferenceRequest(
            model_name=self._name,
            inputs=[make_tensor(name, array) for name, array in tensors.items()],
            requested_output_names=list(requested),
            request_id=request_id,
            timeout=timeout_us,
            parameters=parameters if self._own else {},
        )
        try:
            responses = request.exec(decoupled=True)
            try:
                for response in responses:
                    if response.has_error():
                        raise self._error(response.error().message())
                    outputs = {tensor.name(): read_tensor(tensor) for tensor in response.output_tensors()}
                    self._raise_in_band(outputs)
                    yield outputs
            finally:
                self._keep(responses)
        except pb_utils.TritonModelException as error:
            raise self._error(str(error)) from error

    def _keep(self, responses: Any) -> None:
        now = time.monotonic()
        with self._lock:
            self._ended.append((now, responses))
            while self._ended[0][0] < now - _KEPT_S:
                self._ended.popleft()

    def _raise_in_band(self, outputs: Mapping[str, Array]) -> None:
        if "finish_reason" in outputs:
            error = parse_error(bytes(outputs["finish_reason"].reshape(-1)[0]).decode())
            if error is not None:
                raise error

    def stop(self, request_id: str) -> None:
        """Send the contract's stop request; an error of it changes nothing for the caller."""
        tensors = {
            "input_ids": np.zeros((1, 1), dtype=np.int32),
            "input_lengths": np.ones((1, 1), dtype=np.int32),
            "request_output_len": np.zeros((1, 1), dtype=np.int32),
            "stop": np.ones((1, 1), dtype=np.bool_),
        }
        for _ in self.generate(tensors, (), request_id, 0):
            pass

    def _error(self, text: str) -> NaiadError:
        known = parse_error(text)
        if known is not None:
            return known
        _log.error("calling model %s failed: %s", self._name, text)
        return EngineUnavailable(f"model {self._name} could not be called; retry later")
