"""The request: what it refuses, and the tensors it becomes."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from naiad.contract.ensemble_model import ENSEMBLE
from naiad.contract.text_models import TENSORRT_LLM_BLS
from naiad_client import GenerationRequest, InvalidArgument

EVERYTHING: dict[str, Any] = {
    "max_tokens": 7,
    "stop_words": ["\n", "終"],
    "bad_words": ["x"],
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.125,
    "min_tokens": 2,
    "seed": 2**64 - 1,
    "return_log_probs": True,
}


def tensors(request: GenerationRequest, **how: Any) -> dict[str, tuple[str, list[int], bytes]]:
    message = request.to_protobuf(model="m", request_id="r", **how)
    return {
        tensor.name: (tensor.datatype, list(tensor.shape), raw)
        for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True)
    }


@pytest.mark.parametrize("model", [TENSORRT_LLM_BLS, ENSEMBLE], ids=["bls", "ensemble"])
@pytest.mark.parametrize("prompt", [{"text_input": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_every_tensor_is_one_of_the_contract_with_its_type_and_a_batch_of_one(
    prompt: dict[str, Any], model: Any
) -> None:
    declared = {spec.name: spec for spec in model.inputs}
    for name, (datatype, shape, _) in tensors(GenerationRequest(**prompt, **EVERYTHING)).items():
        spec = declared[name]
        assert spec.dtype.wire_name == datatype, name
        assert shape[0] == 1
        assert len(shape) == 2
        assert shape[1] == 1 or spec.dims == (-1,), name


def test_all_required_tensors_of_the_contract_are_sent() -> None:
    sent = tensors(GenerationRequest(text_input="hi"))
    assert {spec.name for spec in TENSORRT_LLM_BLS.inputs if not spec.optional} <= set(sent)


def test_values_survive_the_packing() -> None:
    sent = tensors(GenerationRequest(text_input="Grüße 👋", **EVERYTHING))
    numbers = {"INT32": "<i4", "FP32": "<f4", "UINT64": "<u8", "BOOL": "?"}
    scalars = {
        name: np.frombuffer(raw, numbers[datatype])[0]
        for name, (datatype, _, raw) in sent.items()
        if datatype != "BYTES"
    }
    for name, value in EVERYTHING.items():
        if not isinstance(value, list):
            assert scalars[name] == value, name
    assert sent["text_input"][2] == struct.pack("<I", 12) + "Grüße 👋".encode()
    assert sent["stop_words"] == ("BYTES", [1, 2], b"\x01\0\0\0\n\x03\0\0\0" + "終".encode())


def test_messages_travel_as_readable_json_in_order() -> None:
    sent = tensors(GenerationRequest.ask("Wie geht's? 🤔", system="Sei kurz."))
    text = sent["messages"][2][4:].decode()
    assert json.loads(text) == [
        {"role": "system", "content": "Sei kurz."},
        {"role": "user", "content": "Wie geht's? 🤔"},
    ]
    assert "🤔" in text
    assert "text_input" not in sent


def test_settings_left_out_are_left_to_the_server() -> None:
    sent = set(tensors(GenerationRequest(text_input="hi")))
    assert sent == {
        "text_input", "max_tokens", "stream", "exclude_input_in_output",
        "return_num_input_tokens", "return_num_output_tokens",
    }  # fmt: skip


def test_token_counts_and_the_empty_final_response_are_always_asked_for() -> None:
    request = GenerationRequest(text_input="hi", stream=False)
    sent = tensors(request)
    assert sent["return_num_input_tokens"][2] == b"\x01"
    assert sent["return_num_output_tokens"][2] == b"\x01"
    assert sent["stream"][2] == b"\x00"
    message = request.to_protobuf(model="m", request_id="r")
    assert message.parameters["triton_enable_empty_final_response"].bool_param
    assert "timeout" not in message.parameters


def test_the_time_limit_is_sent_in_microseconds() -> None:
    message = GenerationRequest(text_input="hi").to_protobuf(model="m", request_id="r", timeout_s=1.5)
    assert message.parameters["timeout"].int64_param == 1_500_000


def test_parameters_keep_their_kind() -> None:
    request = GenerationRequest(text_input="hi", parameters={"a": True, "b": 3, "c": 0.5, "d": "x"})
    message = request.to_protobuf(model="m", request_id="r")
    kinds = {name: message.parameters[name].WhichOneof("parameter_choice") for name in "abcd"}
    assert kinds == {"a": "bool_param", "b": "int64_param", "c": "double_param", "d": "string_param"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({}, "exactly one"),
        ({"text_input": "a", "messages": [{"role": "user", "content": "a"}]}, "exactly one"),
        ({"text_input": ""}, "text_input"),
        ({"text_input": "\udcff"}, "text_input is not valid Unicode"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, r"messages\[0\] needs a role"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content"),
        ({"text_input": "a", "max_tokens": 0}, "max_tokens must be between 1 and"),
        ({"text_input": "a", "max_tokens": None}, "max_tokens"),
        ({"text_input": "a", "max_tokens": 2.5}, "max_tokens must be a whole number"),
        ({"text_input": "a", "max_tokens": True}, "max_tokens"),
        ({"text_input": "a", "max_tokens": 2**31}, "max_tokens"),
        ({"text_input": "a", "temperature": -0.1}, "temperature"),
        ({"text_input": "a", "temperature": float("nan")}, "temperature"),
        ({"text_input": "a", "temperature": "hot"}, "temperature must be a number"),
        ({"text_input": "a", "top_p": 1.1}, "top_p must be between 0.0 and 1.0"),
        ({"text_input": "a", "top_k": -1}, "top_k"),
        ({"text_input": "a", "seed": -1}, "seed"),
        ({"text_input": "a", "seed": 2**64}, "seed"),
        ({"text_input": "a", "min_tokens": 9, "max_tokens": 8}, "min_tokens 9 is above max_tokens 8"),
        ({"text_input": "a", "stop_words": "abc"}, "stop_words must be a list"),
        ({"text_input": "a", "stop_words": [""]}, r"stop_words\[0\]"),
        ({"text_input": "a", "parameters": {"timeout": 3}}, "'timeout' is reserved"),
        ({"text_input": "a", "parameters": {"triton_x": 3}}, "'triton_x' is reserved"),
    ],
)
def test_a_wrong_value_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        GenerationRequest(**wrong)
