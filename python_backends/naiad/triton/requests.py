"""What a model reads from a Triton request and from its own configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from naiad.contract.errors import InvalidArgument
from naiad.contract.tensors import ModelSpec
from naiad.serving.tensor_inputs import Array, TensorInputs
from naiad.settings.parameters import Parameters
from naiad.triton.numpy_abi import read_tensor

__all__ = ["ModelConfiguration", "read_inputs", "request_timeout_us"]


@dataclass(frozen=True, slots=True)
class ModelConfiguration:
    """The loaded model's own configuration.

    Attributes:
        name: model name in the repository.
        version: model version.
        folder: the model's folder in the repository.
        decoupled: whether it may send any number of responses.
        parameters: checked against the specification.
    """

    name: str
    version: str
    folder: str
    decoupled: bool
    parameters: Parameters

    @classmethod
    def of(cls, spec: ModelSpec, args: Mapping[str, str]) -> ModelConfiguration:
        """Read Triton's `initialize` arguments; InvalidArgument for an unknown parameter."""
        config = json.loads(args["model_config"])
        given = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        return cls(
            name=args["model_name"],
            version=args["model_version"],
            folder=args["model_repository"],
            decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
            parameters=Parameters.of(spec, given),
        )


def read_inputs(request: Any, size_tensor: str) -> TensorInputs:
    """Read all input tensors; the batch size is the first dimension of `size_tensor`, or of the first given.

    Raises:
        InvalidArgument: there is no batch dimension.
    """
    tensors: dict[str, Array] = {tensor.name(): read_tensor(tensor) for tensor in request.inputs()}
    sized = tensors.get(size_tensor, next(iter(tensors.values()), None))
    if sized is None or sized.ndim == 0 or sized.shape[0] == 0:
        raise InvalidArgument(f"{size_tensor} needs a batch dimension of at least 1")
    return TensorInputs(tensors, int(sized.shape[0]))


def request_timeout_us(request: Any) -> int:
    """Return the caller's time limit in microseconds: Triton's request timeout; 0 when there is none."""
    parameters = json.loads(request.parameters() or "{}")
    return int(request.timeout() or parameters.get("timeout", 0))
