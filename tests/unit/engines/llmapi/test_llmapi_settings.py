"""The LLM API's settings: parameters and YAML as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.contract.errors import InvalidArgument
from naiad.engines.llmapi_settings import merged_options, read_options


def test_what_either_states_is_told() -> None:
    stated = {"max_batch_size": 8, "kv_cache_config": {"enable_block_reuse": True}}
    file = {"tensor_parallel_size": 2, "max_batch_size": 8, "kv_cache_config": {"dtype": "fp8"}}
    assert merged_options(stated, file) == {
        "max_batch_size": 8,
        "tensor_parallel_size": 2,
        "kv_cache_config": {"dtype": "fp8", "enable_block_reuse": True},
    }


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"max_batch_size": 9}, "llm_api_options says max_batch_size 9, the model's parameters 8"),
        ({"kv_cache_config": {"max_tokens": 1}}, "says kv_cache_config.max_tokens 1, .* parameters 64"),
    ],
)
def test_two_values_for_one_setting_are_refused(file: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        merged_options({"max_batch_size": 8, "kv_cache_config": {"max_tokens": 64}}, file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"a: [", "is not YAML"),
        (b"\xff\xfe\xfa", "is not YAML"),
        (b"- 1", "mapping"),
    ],
)
def test_a_file_that_cannot_be_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "llm_api.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=rf"llm_api\.yaml.*{said}"):
        read_options(path)
