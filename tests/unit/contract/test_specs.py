"""How tensors and models are described, and what a request's sampling means."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from naiad.contract import MODELS, DataType, ModelSpec, SamplingParams, TensorSpec

SPEC = ModelSpec(
    "m",
    "a model",
    inputs=(TensorSpec("x", DataType.INT32, (1,)), TensorSpec("both", DataType.BOOL, (1,))),
    outputs=(TensorSpec("y", DataType.FP32, (-1,)), TensorSpec("both", DataType.STRING, (1,))),
)


@pytest.mark.parametrize("dtype", DataType)
def test_dtypes_are_those_of_triton(dtype: DataType):
    assert model_config_pb2.DataType.Value(dtype.value)  # ValueError when there is none
    assert np_to_triton_dtype(np.dtype(dtype.numpy)) == dtype.wire_name
    assert np.dtype(triton_to_np_dtype(dtype.wire_name)) == np.dtype(dtype.numpy)


def test_strings_are_bytes_on_the_wire():
    assert DataType.STRING.wire_name == "BYTES"
    assert DataType.STRING.numpy is np.object_
    assert DataType.FP16.wire_name == "FP16"


def test_tensors_are_found_by_name_on_their_own_side():
    assert SPEC.input("x").dtype is DataType.INT32
    assert SPEC.output("y").dims == (-1,)
    assert (SPEC.input("both").dtype, SPEC.output("both").dtype) == (DataType.BOOL, DataType.STRING)


@pytest.mark.parametrize("name", ["y", "X", ""])
def test_an_unknown_tensor_is_a_key_error(name: str):
    with pytest.raises(KeyError, match=repr(name)):
        SPEC.input(name)
    with pytest.raises(KeyError):
        SPEC.output(f"{name}?")


def test_descriptions_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SPEC.input("x").optional = True  # type: ignore[misc]


@pytest.mark.parametrize("spec", MODELS, ids=[spec.name for spec in MODELS])
def test_a_scalar_is_declared_as_one_value(spec: ModelSpec):
    for tensor in spec.inputs:
        assert not tensor.scalar or tensor.dims == (1,), tensor.name
    assert not any(tensor.optional or tensor.scalar or tensor.ragged for tensor in spec.outputs)


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        ({}, True),
        ({"temperature": 0.7}, True),
        ({"temperature": 0.0, "top_k": 50, "top_p": 0.9}, True),
        ({"top_k": 1, "top_p": 0.9}, True),
        ({"top_k": 2}, False),
        ({"top_p": 0.9}, False),
        ({"top_p": 1.0}, False),
    ],
)
def test_greedy_follows_tensorrt_llms_rule(sampling: dict[str, float], greedy: bool):
    assert SamplingParams(1, **sampling).greedy is greedy  # type: ignore[arg-type]
