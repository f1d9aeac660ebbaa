"""Calling another model of the same server from a model (business logic scripting).

Facts of Triton 2.51: the iterator of a decoupled call is synchronous, has no cancel, and never ends when the
called model's process dies; whoever iterates needs a watchdog, and a cancel is the contract's stop request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import triton_python_backend_utils as pb_utils

from naiad.contract.errors import EngineUnavailable, NaiadError, parse_error
from naiad.serving.tensor_inputs import Array
from naiad.triton.numpy_abi import make_tensor, read_tensor
from naiad.triton.requests import ERRORS_IN_BAND

__all__ = ["EngineModel"]

_log = logging.getLogger(__name__)


class EngineModel:
    """The engine model, by name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def generate(
        self, tensors: Mapping[str, Array], requested: Sequence[str], request_id: str, timeout_us: int
    ) -> Iterator[dict[str, Array]]:
        """Call the model; yield the output tensors of every response (possibly none in the last).

        Raises:
            NaiadError: the model's own error, or EngineUnavailable when it cannot be called.
        """
        request = pb_utils.InferenceRequest(
            model_name=self._name,
            inputs=[make_tensor(name, array) for name, array in tensors.items()],
            requested_output_names=list(requested),
            request_id=request_id,
            timeout=timeout_us,
            parameters={ERRORS_IN_BAND: True},
        )
        try:
            for response in request.exec(decoupled=True):
                if response.has_error():
                    raise self._error(response.error().message())
                outputs = {tensor.name(): read_tensor(tensor) for tensor in response.output_tensors()}
                self._raise_in_band(outputs)
                yield outputs
        except pb_utils.TritonModelException as error:
            raise self._error(str(error)) from error

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
