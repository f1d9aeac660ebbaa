"""Which engine the parameters ask for, and what they may not ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import InvalidArgument
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines import Engine, NullObserver
from naiad.serving.engine_factory import make_engine
from naiad.settings.parameters import Parameters
from tests.harness import tensorrt_llm_double
from tests.harness.recording_sink import RecordingSink
from tests.harness.tiny_model import CONTEXT, END, OTHER_END


def made(model_directory: Path, **changes: str) -> Engine:
    given = {
        "engine": "synthetic",
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": str(model_directory),
        **changes,
    }
    return make_engine(Parameters.of(TENSORRT_LLM, given), "/nowhere/tensorrt_llm", NullObserver())


def test_the_engine_takes_its_limits_from_the_model_directory(model_directory: Path) -> None:
    engine = made(model_directory, max_tokens_in_paged_kv_cache="640", max_num_sequences="3")
    try:
        assert engine.limits.max_seq_len == CONTEXT
        assert engine.limits.end_ids == {END, OTHER_END}
        assert engine.limits.kv_capacity_tokens == 640
        assert engine.stats().max_active == 3
    finally:
        engine.close()


@pytest.mark.parametrize(("rate", "chunks"), [("0", 5), ("0.001", 2)])
def test_the_rate_of_responses_decides_how_tokens_travel(
    model_directory: Path, rate: str, chunks: int
) -> None:
    engine = made(model_directory, max_responses_per_s=rate)
    try:
        sink = RecordingSink()
        engine.submit(GenerationRequest("", (1, 2, 3), SamplingParams(max_tokens=5)), sink)
        assert sink.reason() is FinishReason.LENGTH
        assert (len(sink.chunks), len(sink.ids)) == (chunks, 5)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("synthetic", "max_responses_per_s", "-1"),
        ("synthetic", "max_responses_per_s", "many"),
        ("openvino", "dynamic_quantization", "maybe"),
    ],
)
def test_a_wrong_value_is_refused_by_name(model_directory: Path, engine: str, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        made(model_directory, engine=engine, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_model_path", "/x"),
        ("max_attention_window_size", "128"),
        ("decoding_mode", "medusa"),
        ("guided_decoding_backend", "xgrammar"),
        ("lora_prefetch_dir", "/x"),
        ("kv_cache_free_gpu_mem_fraction", "0.5"),
        ("llm_api_options", "/x"),
    ],
)
def test_a_parameter_for_gpus_is_refused_by_name(model_directory: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"parameter {name} has no meaning for the synthetic engine"):
        made(model_directory, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_beam_width", "2"),
        ("max_beam_width", "0"),
        ("gpt_model_type", "V1"),
        ("gpt_model_type", ""),
        ("engine", "tensorrt"),
        ("gpt_model_path", "/no/such/model"),
        ("max_tokens_in_paged_kv_cache", "63"),
        ("max_waiting_requests", "0"),
        ("max_num_sequences", "many"),
        ("max_num_tokens", "0"),
        ("cancellation_check_period_ms", "0"),
        ("synthetic_step_ms", "-1"),
    ],
)
def test_a_wrong_value_refuses_the_load(model_directory: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match="no prepared model" if name == "gpt_model_path" else name):
        made(model_directory, **{name: value})


def llm_api(model_directory: Path, **changes: str) -> Engine:
    return made(model_directory, engine="llmapi", max_num_sequences="4", max_num_tokens="8192", **changes)


def test_the_llm_api_is_told_what_the_parameters_and_its_file_say(
    model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorrt_llm_double.install(monkeypatch)
    file = tmp_path / "llm_api.yaml"
    file.write_text("{max_seq_len: 256, kv_cache_config: {dtype: fp8}}", encoding="utf-8")
    engine = llm_api(
        model_directory, llm_api_options=str(file), kv_cache_free_gpu_mem_fraction="0.8", stream_interval="2"
    )
    try:
        assert engine.limits.max_seq_len == 256
        (llm,) = tensorrt_llm_double.LLM.made
        assert llm.options == {
            "max_batch_size": 4,
            "max_num_tokens": 8192,
            "max_seq_len": 256,
            "enable_chunked_prefill": False,
            "kv_cache_config": {"dtype": "fp8", "enable_block_reuse": True, "free_gpu_memory_fraction": 0.8},
            "scheduler_config": {"capacity_scheduler_policy": "GUARANTEED_NO_EVICT"},
        }
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("kv_cache_precision", "u8"), ("dynamic_quantization", "false"), ("decoding_mode", "medusa")],
)
def test_a_parameter_of_other_engines_is_refused_by_the_llm_api(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    tensorrt_llm_double.install(monkeypatch)
    with pytest.raises(InvalidArgument, match=f"parameter {name} has no meaning for the llmapi engine"):
        llm_api(model_directory, **{name: value})
    assert not tensorrt_llm_double.LLM.made
