"""What a model reads beside its tensors: configuration, batch size, request parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from naiad.contract import TENSORRT_LLM, TENSORRT_LLM_BLS
from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.triton.requests import ERRORS_IN_BAND, ModelConfiguration, RequestParameters, read_inputs
from tests.harness.fake_triton import FakeServer, InferenceRequest
from tests.harness.fake_triton_data import Tensor
from tests.unit.triton.conftest import initialize_arguments


def request(
    parameters: dict[str, Any] | None = None, timeout_us: int = 0, **tensors: Any
) -> InferenceRequest:
    inputs = [Tensor(name, np.array(value, dtype=np.int32)) for name, value in tensors.items()]
    return InferenceRequest(inputs=inputs, parameters=parameters, timeout=timeout_us)


def test_the_configuration_is_read_from_tritons_arguments() -> None:
    arguments = initialize_arguments("tensorrt_llm", {"engine": "synthetic"}, decoupled=True)
    config = ModelConfiguration.of(TENSORRT_LLM, arguments)
    assert (config.name, config.version, config.decoupled) == ("tensorrt_llm", "1", True)
    assert config.folder == "/repository/tensorrt_llm"
    assert config.parameters.text("engine") == "synthetic"
    assert config.parameters.text("max_num_sequences") == "256"


def test_a_model_is_not_decoupled_unless_its_configuration_says_so() -> None:
    arguments = initialize_arguments("m", {}) | {"model_config": "{}"}
    assert not ModelConfiguration.of(TENSORRT_LLM, arguments).decoupled


def test_h07_an_unknown_parameter_refuses_the_load_with_a_suggestion() -> None:
    arguments = initialize_arguments("m", {"max_num_sequence": "3"})
    with pytest.raises(InvalidArgument, match="did you mean max_num_sequences"):
        ModelConfiguration.of(TENSORRT_LLM, arguments)


def test_the_batch_size_is_that_of_the_named_tensor() -> None:
    inputs = read_inputs(request(ids=[[1, 2]], lengths=[[1], [2]]), "lengths")
    assert inputs.batch_size == 2
    assert inputs.tensors["ids"].tolist() == [[1, 2]]


def test_without_the_named_tensor_any_other_gives_the_batch_size() -> None:
    assert read_inputs(request(ids=[[1], [2], [3]]), "lengths").batch_size == 3


@pytest.mark.parametrize("tensors", [{}, {"lengths": 3}, {"lengths": []}])
def test_c02_a_request_without_a_batch_dimension_is_refused(tensors: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="lengths needs a batch dimension of at least 1"):
        read_inputs(request(**tensors), "lengths")


def test_a_request_without_parameters_has_no_timeout_and_its_errors_apart(triton: FakeServer) -> None:
    read = RequestParameters.of(request(), TENSORRT_LLM)
    assert (read.timeout_us, read.errors_in_band) == (0, False)
    assert RequestParameters.of(request({ERRORS_IN_BAND: True}), TENSORRT_LLM).errors_in_band


@pytest.mark.parametrize(
    ("native", "parameters", "expected"),
    [(5, None, 5), (0, {"timeout": 7}, 7), (5, {"timeout": 7}, 5), (0, {"timeout": 0}, 0)],
)
def test_the_timeout_is_tritons_own_or_else_the_parameter(
    native: int, parameters: dict[str, Any] | None, expected: int
) -> None:
    assert RequestParameters.of(request(parameters, native), TENSORRT_LLM).timeout_us == expected


@pytest.mark.parametrize("timeout", [-1, "soon", 1.5])
def test_a_timeout_that_is_no_number_of_microseconds_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout must be a whole number of microseconds"):
        RequestParameters.of(request({"timeout": timeout}), TENSORRT_LLM)


@pytest.mark.parametrize(
    "name", ["priority", "sequence_id", "binary_data_output", "Streaming", "X-Request-Id", "traceparent"]
)
def test_what_frontends_and_clients_send_along_is_taken(name: str) -> None:
    RequestParameters.of(request({name: 1}), TENSORRT_LLM)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("temperatur", "; did you mean temperature?"), ("zzzzzz", ""), ("max_token", "max_tokens?")],
)
def test_c01_a_field_that_is_no_tensor_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        RequestParameters.of(request({name: 1}), TENSORRT_LLM_BLS)
    assert caught.value.message.startswith(f"tensorrt_llm_bls has no input or parameter '{name}'")
    assert caught.value.message.endswith(hint or f"'{name}'")


def test_only_whole_generations_are_served() -> None:
    RequestParameters.of(request({"request_type": "context_and_generation"}), TENSORRT_LLM)
    with pytest.raises(Unsupported, match="request_type 'context_only' is not supported"):
        RequestParameters.of(request({"request_type": "context_only"}), TENSORRT_LLM)
