"""NVIDIA's template variables carry over: known command lines fill our configurations."""

from __future__ import annotations

import pytest
from tritonclient.grpc import model_config_pb2

from naiad.contract import MODELS
from naiad.contract.errors import InvalidArgument
from naiad_build.profile import load_profile, profile_path
from naiad_build.render import model_config
from naiad_build.template_variables import parse_variables, with_variables

# From the README of NVIDIA's tensorrtllm_backend, its five calls of fill_template.py joined.
KNOWN_LINES = (
    "tokenizer_dir:/models/llama,triton_max_batch_size:64,preprocessing_instance_count:1,"
    "postprocessing_instance_count:3,decoupled_mode:False,bls_instance_count:2,accumulate_tokens:True,"
    "logits_datatype:TYPE_FP16,triton_backend:tensorrtllm,max_beam_width:1,engine_dir:/engines/llama,"
    "max_tokens_in_paged_kv_cache:2560,max_attention_window_size:2560,kv_cache_free_gpu_mem_fraction:0.5,"
    "exclude_input_in_output:True,enable_kv_cache_reuse:False,batching_strategy:inflight_fused_batching,"
    "max_queue_delay_microseconds:100,max_queue_size:7,encoder_input_features_data_type:TYPE_FP32"
)


def filled(text: str, profile: str = "h200_fp8"):
    changed = with_variables(load_profile(profile_path(profile)), parse_variables(text))
    return {spec.name: model_config(spec, changed) for spec in MODELS}


def parameter(config, name: str) -> str:
    return str(config.parameters[name].string_value)


def test_known_command_lines_land_where_upstream_puts_them() -> None:
    configs = filled(KNOWN_LINES)
    engine, bls = configs["tensorrt_llm"], configs["tensorrt_llm_bls"]
    assert {config.max_batch_size for config in configs.values()} == {64}
    assert engine.backend == "tensorrtllm"
    assert not engine.model_transaction_policy.decoupled
    assert engine.dynamic_batching.max_queue_delay_microseconds == 100
    assert engine.dynamic_batching.default_queue_policy.max_queue_size == 7
    assert parameter(engine, "gpt_model_path") == "/engines/llama"
    assert parameter(engine, "gpt_model_type") == "inflight_fused_batching"
    assert parameter(engine, "kv_cache_free_gpu_mem_fraction") == "0.5"
    assert parameter(engine, "max_attention_window_size") == "2560"
    assert parameter(engine, "enable_kv_cache_reuse") == "False"
    dtypes = {tensor.name: tensor.data_type for tensor in (*engine.input, *engine.output)}
    assert dtypes["context_logits"] == dtypes["draft_logits"] == model_config_pb2.TYPE_FP16
    assert dtypes["encoder_input_features"] == model_config_pb2.TYPE_FP32
    assert bls.instance_group[0].count == 2
    assert configs["postprocessing"].instance_group[0].count == 3
    assert parameter(bls, "accumulate_tokens") == "True"
    for model in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
        assert parameter(configs[model], "tokenizer_dir") == "/models/llama"


def test_backend_python_is_our_own_engine() -> None:
    engine = filled("triton_backend:python", "h200_fp8")["tensorrt_llm"]
    assert engine.backend == "python"
    assert "finish_reason" in {tensor.name for tensor in engine.output}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a:b,", {"a": "b"}),
        ("gpu_device_ids:0\\,1;2\\,3,max_beam_width:1", {"gpu_device_ids": "0,1;2,3", "max_beam_width": "1"}),
        ("engine_dir:/a:b", {"engine_dir": "/a:b"}),
        ("engine_dir:", {"engine_dir": ""}),
        (" engine_dir:/a , max_queue_size:0", {"engine_dir": "/a ", "max_queue_size": "0"}),
    ],
)
def test_the_notation_is_that_of_fill_template(text: str, found: dict[str, str]) -> None:
    assert parse_variables(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engine_dir", "'engine_dir' is no `name:value`"),
        ("a:1,a:2", "template variable a is given twice"),
        ("engine_dirs:/x", "there is no template variable 'engine_dirs'; did you mean engine_dir?"),
        ("gpt_model_path:/x", "there is no template variable 'gpt_model_path'"),
        ("max_num_sequences:3", "there is no template variable 'max_num_sequences'"),
        ("triton_backend:vllm", "backend: Input should be 'python' or 'tensorrtllm', not 'vllm'"),
        ("triton_max_batch_size:many", "max_batch_size: .*, not 'many'"),
        ("decoupled_mode:perhaps", "decoupled: .*, not 'perhaps'"),
        ("preprocessing_instance_count:0", "instances.preprocessing: .*, not '0'"),
        ("logits_datatype:FP16", "datatypes: 'FP16' is none of TYPE_BOOL"),
        ("kv_cache_free_gpu_mem_fraction:lots", "must be a number from 0 to 1, not 'lots'"),
    ],
)
def test_wrong_ones_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        filled(text)
