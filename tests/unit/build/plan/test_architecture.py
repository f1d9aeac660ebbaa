"""Sizes of a model from its config.json, against what others have published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from naiad_build.errors import SourceError, UnsupportedModelError
from naiad_build.plan.architecture import read_architecture
from tests.harness.published_models import CONFIGS, PARAMETERS, architecture


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_counted_to_the_last(name: str) -> None:
    assert architecture(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("Mixtral-8x7B", 12.9e9),  # "uses 12.9B parameters per token", Mistral's announcement of 2023-12-11
        ("Qwen3-30B-A3B", 3.3e9),  # "Number of Activated Parameters: 3.3B", its model card
        ("Qwen1.5-MoE-A2.7B", 2.7e9),  # its name
    ],
)
def test_a_token_passes_some_of_the_experts(name: str, active: float) -> None:
    found = architecture(name)
    embedding = found.vocab_size * found.hidden_size
    assert found.active_parameters + embedding == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize(
    ("name", "bytes_16_bit"),
    [
        (
            "Llama-3.1-70B",
            327_680,
        ),  # IETF draft-calabria-bmwg-ai-fabric-inference-bench: 1,342,177,280 at 4,096
        ("Llama-3.1-8B", 131_072),  # vLLM issue 12330: 11.12 GiB are 5,691 blocks of 16 tokens
        (
            "Llama-2-7B",
            524_288,
        ),  # 2 x 32 x 4096 x 2, no grouped queries; the figure of vLLM's paper for 13B's kind
    ],
)
def test_kv_cache_of_a_token(name: str, bytes_16_bit: int) -> None:
    assert architecture(name).kv_values_per_token * 2 == bytes_16_bit


def written(folder: Path, content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_folder_or_the_file_itself_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, CONFIGS["SmolLM2-135M"])
    assert read_architecture(tmp_path) == read_architecture(path) == architecture("SmolLM2-135M")


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("{", SourceError, "is not JSON"),
        ("[]", SourceError, "must hold a JSON object"),
        ({}, UnsupportedModelError, "architecture None cannot be counted; known are gemma"),
        ({"model_type": "mamba"}, UnsupportedModelError, "'mamba'"),
        (CONFIGS["Llama-2-7B"] | {"hidden_size": None}, SourceError, "`hidden_size` is missing"),
        (CONFIGS["Llama-2-7B"] | {"vocab_size": 0}, SourceError, "`vocab_size` is 0"),
        (CONFIGS["Llama-2-7B"] | {"vocab_size": "x"}, SourceError, '`vocab_size` is "x"'),
        (CONFIGS["Llama-2-7B"] | {"num_hidden_layers": True}, SourceError, "`num_hidden_layers` is true"),
        (CONFIGS["Llama-2-7B"] | {"num_key_value_heads": 5}, SourceError, "32 query heads cannot share 5"),
    ],
)
def test_what_cannot_be_counted_is_refused(tmp_path: Path, content: Any, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        read_architecture(written(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no .*config\.json: name a checkpoint"):
        read_architecture(tmp_path)
