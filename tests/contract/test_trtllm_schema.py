"""`naiad.contract` against NVIDIA's TensorRT-LLM 1.2.1 model repository, tensor by tensor.

`trtllm_schema.json` is that repository's schema. Whatever Naiad adds must be marked an extension; the one
deliberate difference is what is optional: the prompt, because chat messages may take its place, and the
ensemble's max_tokens, because Triton 2.51 ends an ensemble that lacks a required input without any response.
"""

from __future__ import annotations

from typing import Any

import pytest

from naiad.contract import MODELS, ModelSpec, TensorSpec
from naiad_build.tensorrt_llm.schema import schema

SCHEMA = schema()
UPSTREAM_NAMES = {"tensorrt_llm": "triton_tensorrt_llm"}
OPTIONAL_HERE = {
    ("preprocessing", "QUERY"), ("ensemble", "text_input"), ("tensorrt_llm_bls", "text_input"),
    ("preprocessing", "REQUEST_OUTPUT_LEN"), ("ensemble", "max_tokens"),
}  # fmt: skip
# What upstream's template gives where one variable chooses the dtype.
USUAL_DTYPES = {
    "${encoder_input_features_data_type}": "TYPE_FP16",
    "${prompt_embedding_table_data_type}": "TYPE_FP16",
    "${logits_datatype}": "TYPE_FP32",
}

by_model = pytest.mark.parametrize("spec", MODELS, ids=[spec.name for spec in MODELS])


def upstream(spec: ModelSpec) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA[UPSTREAM_NAMES.get(spec.name, spec.name)]
    return found


def as_upstream(tensor: TensorSpec, *, is_input: bool, optional: bool) -> dict[str, Any]:
    """Write a tensor the way the schema does."""
    entry: dict[str, Any] = {
        "name": tensor.name,
        "dtype": f"${{{tensor.variable}}}" if tensor.variable else tensor.dtype.value,
        "dims": list(tensor.dims),
    }
    if is_input:
        entry["optional"] = optional
    if tensor.scalar:
        entry["reshape"] = []
    if tensor.ragged:
        entry["allow_ragged_batch"] = True
    return entry


def test_the_schema_has_exactly_the_models_of_the_contract():
    models = {name for name, entry in SCHEMA.items() if isinstance(entry, dict) and "outputs" in entry}
    models.discard("llmapi")  # the other, undeclared interface of upstream
    assert models == {UPSTREAM_NAMES.get(spec.name, spec.name) for spec in MODELS}


@by_model
def test_inputs_are_upstreams(spec: ModelSpec):
    ours = []
    for tensor in spec.inputs:
        if not tensor.extension:
            deliberate = (spec.name, tensor.name) in OPTIONAL_HERE
            assert tensor.optional or not deliberate
            ours.append(as_upstream(tensor, is_input=True, optional=tensor.optional and not deliberate))
    assert ours == upstream(spec)["inputs"]


@by_model
def test_outputs_are_upstreams(spec: ModelSpec):
    ours = [as_upstream(t, is_input=False, optional=False) for t in spec.outputs if not t.extension]
    assert ours == upstream(spec)["outputs"]


@by_model
def test_parameter_keys_are_upstreams(spec: ModelSpec):
    ours = [parameter.name for parameter in spec.parameters if not parameter.extension]
    assert sorted(ours) == sorted(upstream(spec)["parameters"])


@by_model
def test_parameter_defaults_are_upstreams(spec: ModelSpec):
    for parameter in spec.parameters:
        if parameter.extension:
            continue
        theirs = upstream(spec)["parameters"][parameter.name]["default"]
        if isinstance(theirs, bool):
            theirs = str(theirs).lower()
        if isinstance(theirs, str) and theirs.startswith(("unset", "required")):
            theirs = ""  # in words what happens when it is not set
        expected = None if theirs is None else str(theirs)
        assert parameter.default == expected, parameter.name


@by_model
def test_extensions_take_no_upstream_name(spec: ModelSpec):
    theirs = upstream(spec)
    names = {"inputs": spec.inputs, "outputs": spec.outputs}
    for side, tensors in names.items():
        taken = {tensor["name"] for tensor in theirs[side]}
        assert not taken & {tensor.name for tensor in tensors if tensor.extension}
    assert not theirs["parameters"].keys() & {p.name for p in spec.parameters if p.extension}


@by_model
def test_extensions_are_optional_inputs(spec: ModelSpec):
    """A client of upstream's repository knows nothing of them."""
    assert all(tensor.optional for tensor in spec.inputs if tensor.extension)


@by_model
def test_no_name_stands_twice(spec: ModelSpec):
    for names in (
        [tensor.name for tensor in spec.inputs],
        [tensor.name for tensor in spec.outputs],
        [parameter.name for parameter in spec.parameters],
    ):
        assert len(names) == len(set(names))


@by_model
def test_dtypes_that_a_template_chooses_are_upstreams_usual_ones(spec: ModelSpec):
    for tensor in (*spec.inputs, *spec.outputs):
        if tensor.variable is not None:
            assert tensor.dtype.value == USUAL_DTYPES[f"${{{tensor.variable}}}"], tensor.name


@by_model
def test_ensemble_steps_are_upstreams_but_for_extensions(spec: ModelSpec):
    theirs = upstream(spec).get("steps", [])
    models = {model.name: model for model in MODELS}
    ours = []
    for step in spec.steps:
        called = models[step.model]
        ours.append(
            {
                "model_name": step.model,
                "model_version": -1,
                "input_map": {
                    name: outer for name, outer in step.inputs.items() if not called.input(name).extension
                },
                "output_map": {
                    name: outer for name, outer in step.outputs.items() if not called.output(name).extension
                },
            }
        )
    assert ours == theirs


def test_renamed_inputs_keep_their_old_names_as_extensions():
    renames = {old: new.split()[0] for old, new in SCHEMA["triton_tensorrt_llm"]["input_renames"].items()}
    assert renames == {"min_length": "min_tokens", "random_seed": "seed"}
    engine = next(spec for spec in MODELS if spec.name == "tensorrt_llm")
    for old, new in renames.items():
        assert engine.input(old).extension
        assert (engine.input(old).dtype, engine.input(old).dims) == (engine.input(new).dtype, (1,))
