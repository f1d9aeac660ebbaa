"""Renders every model's configuration from the contract and a profile, whole and typed.

The text is written by protobuf's own text format from Triton's `ModelConfig` message, so what is rendered is
what Triton parses. `config.pbtxt` is the default profile; the others are `configs/<profile>.pbtxt`, chosen
with `tritonserver --model-config-name`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from naiad.contract import MODELS, ModelSpec, TensorSpec
from naiad.settings.profiles import DEFAULT_PROFILE
from naiad_build.nvidia_backend import KEYS_THAT_MUST_EXIST, for_nvidias_backend
from naiad_build.profile import Profile

__all__ = ["model_config", "render", "render_all"]

_WITH_BATCHER = frozenset({"preprocessing", "tensorrt_llm"})
_DIRECTORY_KEYS = frozenset({"tokenizer_dir", "gpt_model_path"})
_ALWAYS_SET = {"gpt_model_type": "inflight_fused_batching", "FORCE_CPU_ONLY_INPUT_TENSORS": "no"}


def model_config(spec: ModelSpec, profile: Profile) -> Any:
    """Return Triton's `ModelConfig` message of one model under a profile."""
    if profile.backend != "python":
        spec = for_nvidias_backend(spec)
    config = model_config_pb2.ModelConfig(name=spec.name, max_batch_size=profile.max_batch_size)
    for tensor in spec.inputs:
        _add_tensor(config.input, tensor, profile)
        config.input[-1].optional = tensor.optional
        config.input[-1].allow_ragged_batch = tensor.ragged
    for tensor in spec.outputs:
        _add_tensor(config.output, tensor, profile)
    if spec.steps:
        _add_steps(config, spec)
        return config
    config.backend = profile.backend if spec.name == "tensorrt_llm" else "python"
    count = getattr(profile.instances, spec.name, 1)
    config.instance_group.add(count=count, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    if spec.name in ("tensorrt_llm", "tensorrt_llm_bls"):
        config.model_transaction_policy.decoupled = profile.decoupled
    if spec.name in _WITH_BATCHER:
        config.dynamic_batching.preferred_batch_size.append(profile.max_batch_size)
        config.dynamic_batching.max_queue_delay_microseconds = profile.max_queue_delay_microseconds
        config.dynamic_batching.default_queue_policy.max_queue_size = profile.max_queue_size
    elif spec.name == "postprocessing":
        config.dynamic_batching.SetInParent()
    _add_parameters(config, spec, profile)
    return config


def _add_tensor(tensors: Any, spec: TensorSpec, profile: Profile) -> None:
    dtype = profile.datatypes.get(spec.variable or "", spec.dtype.value)
    tensor = tensors.add(name=spec.name, data_type=model_config_pb2.DataType.Value(dtype))
    tensor.dims.extend(spec.dims)
    if spec.scalar:
        tensor.reshape.SetInParent()


def _add_steps(config: Any, spec: ModelSpec) -> None:
    config.platform = "ensemble"
    for step in spec.steps:
        added = config.ensemble_scheduling.step.add(model_name=step.model, model_version=-1)
        added.input_map.update(step.inputs)
        added.output_map.update(step.outputs)


def _add_parameters(config: Any, spec: ModelSpec, profile: Profile) -> None:
    given = profile.parameters.get(spec.name, {})
    for parameter in spec.parameters:
        value = given.get(parameter.name)
        if value is None and parameter.name in _DIRECTORY_KEYS and _reads_directory(spec, parameter.name):
            value = _directory(profile, parameter.name)
        if value is None and parameter.name == "tensorrt_llm_backend":
            value = profile.backend
        if value is None:
            value = _ALWAYS_SET.get(parameter.name, parameter.default or "")
        if value or not _is_nvidias(spec, profile) or parameter.name in KEYS_THAT_MUST_EXIST:
            config.parameters[parameter.name].string_value = value


def _is_nvidias(spec: ModelSpec, profile: Profile) -> bool:
    return spec.name == "tensorrt_llm" and profile.backend == "tensorrtllm"


def _directory(profile: Profile, key: str) -> str:
    engine = profile.engine_directory if key == "gpt_model_path" else None
    return engine or profile.model_directory


def _reads_directory(spec: ModelSpec, key: str) -> bool:
    """Only the engine reads an engine directory, and only the text models a tokenizer's."""
    return (spec.name == "tensorrt_llm") == (key == "gpt_model_path")


def render(spec: ModelSpec, profile: Profile, origin: str | None = None) -> str:
    """Return the configuration's text; `origin` says by what, if not from a profile's file."""
    origin = origin or f"`naiad build render` from build/profiles/{profile.name}.yaml"
    header = f"# {spec.summary}. Profile {profile.name}: {profile.summary}.\n"
    source = f"# Rendered by {origin}; do not edit.\n\n"
    return header + source + text_format.MessageToString(model_config(spec, profile))


def render_all(profiles: Iterable[Profile], origin: str | None = None) -> dict[str, str]:
    """Return path below the model repository -> text, for every model and profile; see `render`."""
    files = {}
    for profile in profiles:
        for spec in MODELS:
            default = profile.name == DEFAULT_PROFILE
            name = "config.pbtxt" if default else f"configs/{profile.name}.pbtxt"
            files[f"{spec.name}/{name}"] = render(spec, profile, origin)
    return files
