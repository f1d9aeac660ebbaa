"""What a model reads from a Triton request and from its own configuration."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.contract.tensors import ModelSpec
from naiad.serving.tensor_inputs import Array, TensorInputs
from naiad.settings.parameters import Parameters
from naiad.triton.numpy_abi import read_tensor

__all__ = [
    "CHANNEL_ADDRESS",
    "ERRORS_IN_BAND",
    "THROUGH_CHANNEL",
    "ModelConfiguration",
    "RequestParameters",
    "read_inputs",
    "through_channel",
]


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
    """Read all input tensors; the batch size is the first dimension of `size_tensor` (or of any).

    Raises:
        InvalidArgument: there is no batch dimension.
    """
    tensors: dict[str, Array] = {tensor.name(): read_tensor(tensor) for tensor in request.inputs()}
    sized = tensors.get(size_tensor, next(iter(tensors.values()), None))
    if sized is None or sized.ndim == 0 or sized.shape[0] == 0:
        raise InvalidArgument(f"{size_tensor} needs a batch dimension of at least 1")
    return TensorInputs(tensors, int(sized.shape[0]))


# Set on BLS calls: Triton 2.51 loses an error that follows data there, so it travels as a `finish_reason` of
# the form `[CODE] message` instead.
ERRORS_IN_BAND = "naiad_errors_in_band"

# Set on BLS calls as well: where the tokens go (see `naiad.serving.token_channel`). The one response then has
# THROUGH_CHANNEL as its `finish_reason`. An engine that knows no channels answers as always.
CHANNEL_ADDRESS = "naiad_token_channel"
THROUGH_CHANNEL = b"through token channel"


def through_channel(response: Mapping[str, Array]) -> bool:
    """Whether this is the one response of a call whose tokens went through its channel."""
    return "finish_reason" in response and response["finish_reason"].reshape(-1)[0] == THROUGH_CHANNEL


# Parameters that Triton, its frontends and NVIDIA's clients send along. HTTP generate turns every field that
# is no tensor into a parameter, so an unknown one is a misspelt tensor and is refused.
_KNOWN_PARAMETERS = frozenset(
    {
        "timeout", "priority", "sequence_id", "sequence_start", "sequence_end", "binary_data_output",
        "triton_enable_empty_final_response", "Streaming", "streaming", "authorization", "traceparent",
        "tracestate", ERRORS_IN_BAND, CHANNEL_ADDRESS,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestParameters:
    """The request's own parameters: what comes beside the tensors.

    Attributes:
        timeout_us: Triton's request timeout in microseconds; 0 when there is none.
        errors_in_band: send an error as the `finish_reason` output (see `ERRORS_IN_BAND`).
        token_channel: address of the channel for the tokens; empty for responses of the request.
    """

    timeout_us: int
    errors_in_band: bool
    token_channel: str

    @classmethod
    def of(cls, request: Any, spec: ModelSpec) -> RequestParameters:
        """Read and check them.

        Raises:
            InvalidArgument: an unknown parameter (the nearest tensor is suggested), or a bad timeout.
            Unsupported: a request type of disaggregated serving.
        """
        given = json.loads(request.parameters() or "{}")
        for name, value in given.items():
            if name == "request_type":
                if value != "context_and_generation":
                    raise Unsupported(
                        f"request_type {value!r} is not supported: only context_and_generation is"
                    )
            elif name not in _KNOWN_PARAMETERS and not name.lower().startswith("x-"):
                near = difflib.get_close_matches(name, [tensor.name for tensor in spec.inputs], n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise InvalidArgument(f"{spec.name} has no input or parameter {name!r}{hint}")
        timeout = request.timeout() or given.get("timeout", 0)
        if not isinstance(timeout, int) or timeout < 0:
            raise InvalidArgument("timeout must be a whole number of microseconds, at least 0")
        return cls(timeout, bool(given.get(ERRORS_IN_BAND, False)), str(given.get(CHANNEL_ADDRESS, "")))
