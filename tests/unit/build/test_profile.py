"""Deployment profiles: what a YAML file may say, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from naiad.contract import MODELS
from naiad.contract.errors import InvalidArgument
from naiad_build.profile import PROFILES_FOLDER, Profile, load_profile

LEAST = "summary: a test\ndecoupled: true\nmodel_directory: models/x\n"


@pytest.fixture
def write(tmp_path: Path):
    """Write a profile named `lab` and return its path."""

    def write(text: str) -> Path:
        path = tmp_path / "lab.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(InvalidArgument) as refused:
        load_profile(path)
    assert str(path.parent) not in refused.value.message
    return refused.value.message


def test_a_profile_is_named_for_its_file_and_has_defaults(write):
    profile = load_profile(write(LEAST))
    assert (profile.name, profile.summary, profile.decoupled) == ("lab", "a test", True)
    assert (profile.max_batch_size, profile.max_queue_size, profile.max_queue_delay_microseconds) == (
        64,
        0,
        0,
    )
    assert profile.instances.model_dump() == {"preprocessing": 1, "postprocessing": 1, "tensorrt_llm_bls": 1}
    assert profile.parameters == {}


def test_scalars_become_tritons_strings(write):
    text = LEAST + (
        "parameters:\n  tensorrt_llm:\n    engine: synthetic\n    enable_chunked_context: true\n"
        "    enable_kv_cache_reuse: no\n    max_num_tokens: 8192\n    synthetic_step_ms: 0.5\n"
    )
    assert load_profile(write(text)).parameters["tensorrt_llm"] == {
        "engine": "synthetic",
        "enable_chunked_context": "true",
        "enable_kv_cache_reuse": "false",
        "max_num_tokens": "8192",
        "synthetic_step_ms": "0.5",
    }


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("max_batch_sise: 8", "max_batch_sise"),
        ("instances:\n  preprocesing: 2", "instances.preprocesing"),
        ("instances:\n  tensorrt_llm: 2", "instances.tensorrt_llm"),
    ],
)
def test_a_misspelt_setting_is_named(write, line, key):
    message = refusal(write(LEAST + line))
    assert message.startswith(f"profile lab.yaml: {key}: ")


@pytest.mark.parametrize("key", ["summary", "decoupled", "model_directory"])
def test_a_missing_setting_is_named(write, key):
    lines = [line for line in LEAST.splitlines() if not line.startswith(key)]
    assert refusal(write("\n".join(lines))).startswith(f"profile lab.yaml: {key}: ")


def test_a_misspelt_parameter_is_named_with_its_model_and_what_was_meant(write):
    message = refusal(write(LEAST + "parameters:\n  tensorrt_llm:\n    max_num_sequence: 4"))
    assert "model tensorrt_llm has no parameter 'max_num_sequence'" in message
    assert "did you mean max_num_sequences?" in message


def test_an_unknown_model_is_named_with_those_there_are(write):
    message = refusal(write(LEAST + "parameters:\n  tensorrtllm:\n    engine: synthetic"))
    assert "no model 'tensorrtllm'" in message
    assert all(spec.name in message for spec in MODELS)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("[1, 2]", "parameters.tensorrt_llm.max_num_tokens"),
        ("{a: 1}", "parameters.tensorrt_llm.max_num_tokens"),
        ("", "parameters.tensorrt_llm.max_num_tokens"),
    ],
)
def test_a_parameter_that_is_no_scalar_is_named(write, value, key):
    assert key in refusal(write(LEAST + f"parameters:\n  tensorrt_llm:\n    max_num_tokens: {value}"))


@pytest.mark.parametrize(
    "parameters", ["[]", "text", "{tensorrt_llm: text}", "{tensorrt_llm: [1]}", "{1: {}}"]
)
def test_parameters_that_are_no_mapping_of_mappings_are_refused(write, parameters):
    assert "parameters" in refusal(write(LEAST + f"parameters: {parameters}"))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("max_batch_size: 0", "max_batch_size"),
        ("max_batch_size: many", "max_batch_size"),
        ("max_queue_size: -1", "max_queue_size"),
        ("max_queue_delay_microseconds: -1", "max_queue_delay_microseconds"),
        ("instances:\n  postprocessing: 0", "instances.postprocessing"),
        ("instances: 3", "instances"),
    ],
)
def test_a_value_out_of_range_is_named(write, line, key):
    assert refusal(write(LEAST + line)).startswith(f"profile lab.yaml: {key}: ")


@pytest.mark.parametrize("text", ["", "- a\n- b", "just text", "3"])
def test_a_file_that_is_no_mapping_is_refused(write, text):
    assert refusal(write(text)) == "lab.yaml must be a mapping of settings"


def test_a_file_that_is_no_yaml_says_where(write):
    message = refusal(write("summary: [1\ndecoupled: true"))
    assert message.startswith("lab.yaml is not YAML: ")
    assert "line 2" in message


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"summary: \xff\xfe\n")
    assert refusal(path).startswith("lab.yaml is not YAML: ")


def test_the_name_is_the_files_and_cannot_be_set(write):
    assert "name" in refusal(write(LEAST + "name: other"))


def test_keys_that_are_no_text_are_refused(write):
    assert refusal(write(LEAST + "1: 2")).startswith("profile lab.yaml: ")


def test_a_missing_profile_names_those_there_are(write):
    path = write(LEAST)
    path.with_name("other.yaml").write_text(LEAST)
    assert refusal(path.with_name("nope.yaml")) == "there is no profile nope; known are: lab, other"


def test_a_missing_profile_in_an_empty_folder_says_that_there_is_none(tmp_path):
    assert refusal(tmp_path / "nope.yaml").endswith("known are: none")


def test_a_profile_cannot_be_changed(write):
    profile = load_profile(write(LEAST))
    with pytest.raises(ValidationError):
        profile.decoupled = False


@pytest.mark.parametrize("path", sorted(PROFILES_FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_committed_profile_loads(path: Path):
    profile = load_profile(path)
    assert isinstance(profile, Profile)
    assert profile.name == path.stem
