"""What is set for TensorRT-LLM is checked against its own names and types."""

from __future__ import annotations

from typing import Any

import pytest

from naiad.contract.errors import InvalidArgument
from naiad_build.tensorrt_llm.schema import check_build_flags, check_llm_args, check_parameters, schema


def test_flags_become_words_of_a_command_line() -> None:
    flags: dict[str, str | int | bool] = {"max_batch_size": 64, "use_paged_context_fmha": "enable"}
    flags |= {"fast_build": True, "dry_run": False}
    assert check_build_flags(flags) == [
        "--max_batch_size", "64", "--use_paged_context_fmha", "enable", "--fast_build",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max_batchsize": 1}, "trtllm-build has no flag --max_batchsize; did you mean --max_batch_size?"),
        ({"zzz": 1}, "trtllm-build has no flag --zzz$"),
        ({"paged_kv_cache": "enable"}, "--paged_kv_cache is deprecated: use --kv_cache_type paged"),
        ({"gather_generation_logits": True}, "--gather_generation_logits is deprecated: no build flag"),
        ({"max_batch_size": "many"}, "--max_batch_size must be a whole number, not 'many'"),
        ({"max_batch_size": True}, "--max_batch_size must be a whole number, not True"),
        ({"max_batch_size": 1.5}, "--max_batch_size must be a whole number, not 1.5"),
        ({"gemm_plugin": "fp9"}, "--gemm_plugin must be one of auto, float16, .*, not 'fp9'"),
        ({"use_fp8_context_fmha": True}, "--use_fp8_context_fmha must be one of enable, disable, not True"),
        ({"fast_build": "yes"}, "--fast_build takes no value: true or false, not 'yes'"),
        ({"kv_cache_type": "page"}, "--kv_cache_type must be one of continuous, paged, disabled"),
    ],
)
def test_wrong_flags_are_refused_by_name(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_build_flags(flags)


@pytest.mark.parametrize("flag", schema()["trtllm_build_flags"], ids=lambda flag: flag["flag"])
def test_every_default_of_a_flag_is_of_its_type(flag: dict[str, Any]) -> None:
    if flag["default"] is not None and "deprecated" not in flag:
        check_build_flags({flag["flag"].removeprefix("--"): flag["default"]})


def test_settings_of_the_llm_api_pass_nested_ones_included() -> None:
    check_llm_args(
        {
            "tensor_parallel_size": 2,
            "guided_decoding_backend": "xgrammar",
            "kv_cache_config": {
                "free_gpu_memory_fraction": 0.85,
                "dtype": "fp8",
                "max_attention_window": [4096],
            },
            "scheduler_config": {
                "capacity_scheduler_policy": "MAX_UTILIZATION",
                "dynamic_batch_config": {"enable_batch_size_tuning": False},
            },
            "cuda_graph_config": {"batch_sizes": [1, 2, 4], "enable_padding": True},
            "cache_transceiver_config": None,
            "speculative_config": {"decoding_type": "NGram", "max_draft_len": 4, "is_keep_all": False},
            "env_overrides": {"A": "b"},
        }
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"tensor_paralel_size": 2},
            "LLM has no field tensor_paralel_size; did you mean tensor_parallel_size?",
        ),
        ({"decoding_config": {}}, "decoding_config is deprecated"),
        ({"max_batch_size": "8"}, "LLM.max_batch_size must be a whole number, not '8'"),
        ({"enable_chunked_prefill": "yes"}, "LLM.enable_chunked_prefill must be true or false, not 'yes'"),
        ({"stream_interval": 0}, "LLM.stream_interval must be a whole number above 0, not 0"),
        ({"kv_cache_config": 3}, "LLM.kv_cache_config must be KvCacheConfig, not 3"),
        (
            {"kv_cache_config": {"free_gpu_memory_fraction": 90}},
            "LLM.kv_cache_config.free_gpu_memory_fraction must be a number from 0 to 1, not 90",
        ),
        (
            {"kv_cache_config": {"enable_block_resuse": True}},
            "LLM.kv_cache_config has no field enable_block_resuse; did you mean enable_block_reuse?",
        ),
        (
            {"scheduler_config": {"capacity_scheduler_policy": "max_utilization"}},
            "capacity_scheduler_policy must be one of MAX_UTILIZATION, GUARANTEED_NO_EVICT, STATIC_BATCH",
        ),
        ({"cuda_graph_config": {"batch_sizes": ["a"]}}, "must be a list of whole numbers"),
        ({"speculative_config": {"decoding_type": "Nope"}}, "decoding_type 'Nope' is none"),
        (
            {"speculative_config": {"decoding_type": "NGram", "medusa_choices": [[0]]}},
            "LLM.speculative_config has no field medusa_choices",
        ),
        ({"batch_wait_max_tokens_ratio": -0.1}, "must be a number from 0 to 1"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_llm_args(settings)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (
            "tensorrt_llm",
            {
                "kv_cache_free_gpu_mem_fraction": "0.9",
                "enable_chunked_context": "True",
                "gpu_device_ids": "0,1;2,3",
                "max_attention_window_size": "2560,4096",
                "eagle_choices": "{0,0,0},{0,1}",
                "kv_cache_host_memory_bytes": "0",
                "batch_scheduler_policy": "max_utilization",
                "engine": "ours, which upstream knows nothing of",
                "lookahead_window_size": "",
            },
        ),
        ("preprocessing", {"add_special_tokens": "false"}),
        ("ensemble", {}),
    ],
)
def test_parameters_of_the_right_type_pass(model: str, parameters: dict[str, str]) -> None:
    check_parameters(model, parameters)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kv_cache_free_gpu_mem_fraction", "abc", "must be a number from 0 to 1, not 'abc'"),
        ("kv_cache_free_gpu_mem_fraction", "90", "must be a number from 0 to 1, not '90'"),
        ("max_beam_width", "1.5", "must be a whole number, not '1.5'"),
        ("lookahead_window_size", "-1", "must be a whole number of at least 0, not '-1'"),
        ("enable_kv_cache_reuse", "perhaps", "must be true or false, not 'perhaps'"),
        ("batch_scheduler_policy", "no_evict", "must be one of max_utilization, guaranteed_no_evict"),
        ("gpt_model_type", "inflight", "must be one of inflight_fused_batching"),
        ("max_attention_window_size", "a,b", "must be whole numbers between commas"),
        ("medusa_choices", "0,0", "must be lists like"),
    ],
)
def test_parameters_of_a_wrong_type_are_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=f"tensorrt_llm: parameter {name} {said}"):
        check_parameters("tensorrt_llm", {name: value})
