"""Hosts of the stateless models `preprocessing` and `postprocessing`: one response a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import triton_python_backend_utils as pb_utils

from naiad.contract import POSTPROCESSING, PREPROCESSING, ModelSpec
from naiad.serving.postprocessing import postprocess
from naiad.serving.preprocessing import preprocess
from naiad.serving.tensor_inputs import Array, TensorInputs
from naiad.triton.logs import configure_logging
from naiad.triton.numpy_abi import make_tensor, self_test
from naiad.triton.requests import ModelConfiguration, read_inputs
from naiad.triton.responses import as_naiad_error, error_response
from naiad.triton.tokenizers import load_tokenizer

__all__ = ["PostprocessingHost", "PreprocessingHost"]


class _BatchHost(ABC):
    """One response a request; a request that fails does so alone."""

    spec: ClassVar[ModelSpec]
    size_tensor: ClassVar[str]
    special_tokens: ClassVar[str]  # the parameter that says what becomes of them

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the tokenizer; any wrong setting refuses the load by name."""
        configure_logging(args["model_name"])
        self_test()
        self._config = ModelConfiguration.of(self.spec, args)
        self._special_tokens = self._config.parameters.flag(self.special_tokens)
        self._tokenizer = load_tokenizer(self._config)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request of the batch."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            outputs = self._run(read_inputs(request, self.size_tensor))
            requested = set(request.requested_output_names())
            tensors = [make_tensor(name, array) for name, array in outputs.items() if name in requested]
            return pb_utils.InferenceResponse(tensors)
        except Exception as error:  # noqa: BLE001 - its batch mates must not fail with it
            return error_response(as_naiad_error(error, f"running {self._config.name}"))

    @abstractmethod
    def _run(self, inputs: TensorInputs) -> dict[str, Array]:
        """Return the output tensors of one request."""


class PreprocessingHost(_BatchHost):
    """Text or chat messages to token ids."""

    spec = PREPROCESSING
    size_tensor = "REQUEST_OUTPUT_LEN"
    special_tokens = "add_special_tokens"

    def _run(self, inputs: TensorInputs) -> dict[str, Array]:
        return preprocess(inputs, self._tokenizer, add_special_tokens=self._special_tokens)


class PostprocessingHost(_BatchHost):
    """Token ids to text."""

    spec = POSTPROCESSING
    size_tensor = "TOKENS_BATCH"
    special_tokens = "skip_special_tokens"

    def _run(self, inputs: TensorInputs) -> dict[str, Array]:
        return postprocess(inputs, self._tokenizer, skip_special_tokens=self._special_tokens)
