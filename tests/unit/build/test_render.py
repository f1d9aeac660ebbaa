"""Rendering a profile: overrides land, directories go where they are read, the structure is upstream's."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from naiad.contract import (
    ENSEMBLE,
    MODELS,
    POSTPROCESSING,
    PREPROCESSING,
    TENSORRT_LLM,
    TENSORRT_LLM_BLS,
    ModelSpec,
)
from naiad.settings.profiles import DEFAULT_PROFILE
from naiad_build.profile import Instances, Profile
from naiad_build.render import model_config, render, render_all
from naiad_build.tensorrt_llm.schema import schema

SCHEMA = schema()
PYTHON_MODELS = [spec for spec in MODELS if not spec.steps]

by_model = pytest.mark.parametrize("spec", MODELS, ids=[spec.name for spec in MODELS])


def profile(**settings: Any) -> Profile:
    return Profile(
        **{"name": "lab", "summary": "a test", "decoupled": True, "model_directory": "models/x", **settings}
    )


def parameters(spec: ModelSpec, **settings: Any) -> dict[str, str]:
    config = model_config(spec, profile(**settings))
    return {key: value.string_value for key, value in config.parameters.items()}


@by_model
def test_the_text_says_what_the_message_says(spec: ModelSpec):
    parsed = text_format.Parse(render(spec, profile()), model_config_pb2.ModelConfig())
    assert parsed == model_config(spec, profile())


@by_model
def test_the_text_says_where_it_comes_from(spec: ModelSpec):
    first, second, empty, *_ = render(spec, profile()).splitlines()
    assert first == f"# {spec.summary}. Profile lab: a test."
    assert "build/profiles/lab.yaml; do not edit" in second
    assert empty == ""


def test_an_override_lands_in_its_model_and_nowhere_else():
    overrides = {"tensorrt_llm": {"max_num_sequences": "3", "engine": "synthetic"}}
    plain, changed = parameters(TENSORRT_LLM), parameters(TENSORRT_LLM, parameters=overrides)
    assert {key for key in plain if plain[key] != changed[key]} == {"max_num_sequences", "engine"}
    assert (changed["max_num_sequences"], changed["engine"]) == ("3", "synthetic")
    for spec in PYTHON_MODELS:
        if spec is not TENSORRT_LLM:
            assert parameters(spec, parameters=overrides) == parameters(spec)


@pytest.mark.parametrize("spec", PYTHON_MODELS, ids=[spec.name for spec in PYTHON_MODELS])
def test_every_parameter_is_written_with_its_default(spec: ModelSpec):
    written = parameters(spec)
    assert written.keys() == {parameter.name for parameter in spec.parameters}
    untouched = written.keys() - {"tokenizer_dir", "gpt_model_path", "gpt_model_type"}
    defaults = {parameter.name: parameter.default or "" for parameter in spec.parameters}
    assert {key: written[key] for key in untouched} == {key: defaults[key] for key in untouched}


def test_the_engine_batches_in_flight():
    assert parameters(TENSORRT_LLM)["gpt_model_type"] == "inflight_fused_batching"


@pytest.mark.parametrize(
    ("spec", "reads", "ignores"),
    [
        (TENSORRT_LLM, "gpt_model_path", "tokenizer_dir"),
        (PREPROCESSING, "tokenizer_dir", "gpt_model_path"),
        (POSTPROCESSING, "tokenizer_dir", None),
        (TENSORRT_LLM_BLS, "tokenizer_dir", None),
    ],
)
def test_the_model_directory_goes_to_whoever_reads_it(spec: ModelSpec, reads: str, ignores: str | None):
    written = parameters(spec, model_directory="/models/y")
    assert written[reads] == "/models/y"
    assert ignores is None or written[ignores] == ""
    assert [key for key, value in written.items() if value == "/models/y"] == [reads]


def test_a_models_own_directory_wins_over_the_profiles():
    overrides = {"preprocessing": {"tokenizer_dir": "/elsewhere"}}
    assert parameters(PREPROCESSING, parameters=overrides)["tokenizer_dir"] == "/elsewhere"
    assert parameters(POSTPROCESSING, parameters=overrides)["tokenizer_dir"] == "models/x"


@pytest.mark.parametrize("decoupled", [True, False])
def test_engine_and_text_model_follow_the_profiles_decoupling(decoupled: bool):
    for spec in MODELS:
        config = model_config(spec, profile(decoupled=decoupled))
        follows = spec in (TENSORRT_LLM, TENSORRT_LLM_BLS)
        assert config.model_transaction_policy.decoupled is (decoupled and follows)


def test_batching_and_instances_land():
    settings = profile(
        max_batch_size=5,
        max_queue_delay_microseconds=700,
        max_queue_size=9,
        instances=Instances(preprocessing=2, postprocessing=3, tensorrt_llm_bls=4),
    )
    configs = {spec.name: model_config(spec, settings) for spec in MODELS}
    assert all(config.max_batch_size == 5 for config in configs.values())
    counts = {name: [group.count for group in config.instance_group] for name, config in configs.items()}
    assert counts == {
        "preprocessing": [2],
        "tensorrt_llm": [1],
        "postprocessing": [3],
        "tensorrt_llm_bls": [4],
        "ensemble": [],
    }
    for name in ("preprocessing", "tensorrt_llm"):
        batching = configs[name].dynamic_batching
        assert list(batching.preferred_batch_size) == [5]
        assert batching.max_queue_delay_microseconds == 700
        assert batching.default_queue_policy.max_queue_size == 9


@by_model
def test_the_structure_is_upstreams(spec: ModelSpec):
    theirs = SCHEMA[{"tensorrt_llm": "triton_tensorrt_llm"}.get(spec.name, spec.name)]["config"]
    config = model_config(spec, profile(max_queue_delay_microseconds=1, max_queue_size=1))
    assert config.HasField("dynamic_batching") == (theirs.get("dynamic_batching") is not None)
    for key in theirs.get("dynamic_batching") or {}:
        assert getattr(config.dynamic_batching, key), key
    assert config.HasField("model_transaction_policy") == ("decoupled" in theirs)
    assert config.platform == theirs.get("platform", "")
    assert config.backend == ("python" if "backend" in theirs else "")
    kinds = [model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind) for group in config.instance_group]
    assert kinds == [group["kind"] for group in theirs.get("instance_group", [])]


@by_model
def test_tensors_carry_their_flags(spec: ModelSpec):
    config = model_config(spec, profile())
    for specs, tensors in ((spec.inputs, config.input), (spec.outputs, config.output)):
        assert len(specs) == len(tensors)
        for tensor, written in zip(specs, tensors, strict=True):
            assert written.name == tensor.name
            assert model_config_pb2.DataType.Name(written.data_type) == tensor.dtype.value
            assert tuple(written.dims) == tensor.dims
            assert written.HasField("reshape") == tensor.scalar
            assert list(written.reshape.shape) == []
    for tensor, written in zip(spec.inputs, config.input, strict=True):
        assert (written.optional, written.allow_ragged_batch) == (tensor.optional, tensor.ragged)


def test_the_ensemble_is_its_steps():
    config = model_config(ENSEMBLE, profile())
    steps = [
        (s.model_name, s.model_version, dict(s.input_map), dict(s.output_map))
        for s in config.ensemble_scheduling.step
    ]
    assert steps == [(step.model, -1, step.inputs, step.outputs) for step in ENSEMBLE.steps]


def test_the_default_profile_is_config_pbtxt_and_others_are_chosen_by_name():
    files = render_all([profile(name=DEFAULT_PROFILE), profile()])
    assert files.keys() == {
        f"{spec.name}/{name}" for spec in MODELS for name in ("config.pbtxt", "configs/lab.pbtxt")
    }


def test_rendering_twice_gives_the_same_text():
    """Protobuf's maps have no order of their own; the text must not change from run to run."""
    overrides = {"tensorrt_llm": {"engine": "synthetic"}}
    assert render_all([profile(parameters=overrides)]) == render_all([profile(parameters=overrides)])
    keys = [line for line in render(TENSORRT_LLM, profile()).splitlines() if line.startswith("  key: ")]
    assert keys == sorted(keys)
