"""Profiles for NVIDIA's own backend: what is committed is upstream's contract, and nothing else.

None of these was run on a GPU. They parse as Triton's message, and every tensor, parameter and step is
checked against the schema of upstream's repository.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from naiad_build.plan.machines import GPUS
from naiad_build.plan.precisions import PRECISIONS
from naiad_build.profile import Profile, known_profiles, load_profile, profile_path
from naiad_build.tensorrt_llm.schema import schema

REPOSITORY = Path(__file__).parents[2] / "model_repository"
SCHEMA = schema()
PROFILES = [
    profile
    for name in known_profiles()
    if (profile := load_profile(profile_path(name))).backend == "tensorrtllm"
]

by_profile = pytest.mark.parametrize("profile", PROFILES, ids=[profile.name for profile in PROFILES])


def committed(profile: Profile, model: str) -> Any:
    path = REPOSITORY / model / "configs" / f"{profile.name}.pbtxt"
    return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())


def test_the_profiles_are_those_promised() -> None:
    names = {profile.name for profile in PROFILES}
    assert names == {"h100_fp8", "h200_fp8", "h200_fp8_tp2", "a100_int8_sq", "l40s_fp8"}


@by_profile
def test_the_engine_model_is_upstreams_tensor_by_tensor(profile: Profile) -> None:
    config, theirs = committed(profile, "tensorrt_llm"), SCHEMA["triton_tensorrt_llm"]
    assert config.backend == "tensorrtllm"
    assert config.model_transaction_policy.decoupled
    for side in ("inputs", "outputs"):
        ours = [(t.name, list(t.dims)) for t in getattr(config, side.removesuffix("s"))]
        assert ours == [(tensor["name"], tensor["dims"]) for tensor in theirs[side]]


@by_profile
def test_every_parameter_of_the_engine_model_is_known_and_has_a_value(profile: Profile) -> None:
    """An empty one would be parsed as the number it should be; upstream looks three up even so."""
    config = committed(profile, "tensorrt_llm")
    values = {name: value.string_value for name, value in config.parameters.items()}
    assert values.keys() <= SCHEMA["triton_tensorrt_llm"]["parameters"].keys()
    assert {name for name, value in values.items() if not value} <= {
        "tokenizer_dir",
        "xgrammar_tokenizer_info_path",
    }
    assert values["gpt_model_path"] == profile.engine_directory
    assert values["gpt_model_type"] == "inflight_fused_batching"


@by_profile
def test_the_ensemble_waits_for_nothing_that_the_backend_never_makes(profile: Profile) -> None:
    config, theirs = committed(profile, "ensemble"), SCHEMA["ensemble"]
    engine = committed(profile, "tensorrt_llm")
    assert [tensor.name for tensor in config.output] == [tensor["name"] for tensor in theirs["outputs"]]
    step = next(step for step in config.ensemble_scheduling.step if step.model_name == "tensorrt_llm")
    assert set(step.input_map) <= {tensor.name for tensor in engine.input}
    assert set(step.output_map) <= {tensor.name for tensor in engine.output}
    written = {outer for step in config.ensemble_scheduling.step for outer in step.output_map.values()}
    assert {tensor.name for tensor in config.output} <= written


@by_profile
def test_the_text_model_asks_nvidias_backend_for_what_it_has(profile: Profile) -> None:
    config = committed(profile, "tensorrt_llm_bls")
    assert config.backend == "python"
    assert config.parameters["tensorrt_llm_backend"].string_value == "tensorrtllm"


@by_profile
def test_the_machine_can_compute_in_the_profiles_precision(profile: Profile) -> None:
    assert profile.machine is not None
    assert profile.engine is not None
    gpu, precision = GPUS[profile.machine.gpu], PRECISIONS[profile.engine.precision]
    assert gpu.compute_capability >= precision.compute_capability
    assert precision.name in profile.name
    assert profile.max_batch_size == profile.engine.max_batch_size
