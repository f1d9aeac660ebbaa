"""Which engine a model's parameters ask for; what an engine needs is imported only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import InvalidArgument
from naiad.engines import Engine, EngineLimits, EngineObserver, StepLoop
from naiad.engines.stepper import Stepper
from naiad.settings.model_directory import ModelDirectory, repository_path, resolve_model_directory
from naiad.settings.parameters import Parameters

__all__ = ["make_engine", "make_stepper"]

DEFAULT_KV_TOKENS = 24_576
_GPU_ONLY = {
    "encoder_model_path", "max_attention_window_size", "sink_token_length", "kv_cache_free_gpu_mem_fraction",
    "cross_kv_cache_fraction", "gpu_device_ids", "participant_ids", "lora_cache_gpu_memory_fraction",
    "lora_cache_host_memory_bytes", "lora_prefetch_dir", "decoding_mode", "lookahead_window_size",
    "lookahead_ngram_size", "lookahead_verification_set_size", "medusa_choices", "eagle_choices",
    "guided_decoding_backend", "xgrammar_tokenizer_info_path",
}  # fmt: skip
_LLM_API_TOO = {"kv_cache_free_gpu_mem_fraction"}
_CPU_ONLY = {"kv_cache_precision", "dynamic_quantization"}
_DEFAULTS = {parameter.name: parameter.default or "" for parameter in TENSORRT_LLM.parameters}


def make_stepper(parameters: Parameters, model_folder: str, *, in_process: bool = False) -> Stepper:
    """Load what the parameters name, to be stepped by the caller; see `make_engine`.

    `in_process` runs OpenVINO in this process instead of one of its own.
    """
    engine = parameters.choice("engine", "openvino", "llmapi", "synthetic")
    others = (_GPU_ONLY - _LLM_API_TOO) | _CPU_ONLY if engine == "llmapi" else _GPU_ONLY | {"llm_api_options"}
    for name in sorted(others):
        if parameters.text(name) != _DEFAULTS[name]:
            raise InvalidArgument(f"parameter {name} has no meaning for the {engine} engine")
    if parameters.integer("max_beam_width", minimum=1) > 1:
        raise InvalidArgument("parameter max_beam_width must be 1: this engine has no beam search")
    parameters.choice("gpt_model_type", "inflight_fused_batching", "inflight_batching")
    directory = ModelDirectory.load(resolve_model_directory(parameters.text("gpt_model_path"), model_folder))
    if engine == "llmapi":
        return _llmapi(parameters, directory, model_folder)
    kv_tokens = parameters.optional_integer("max_tokens_in_paged_kv_cache", minimum=64) or DEFAULT_KV_TOKENS
    limits = EngineLimits(
        vocab_size=directory.vocab_size,
        max_seq_len=directory.context_length,
        kv_capacity_tokens=kv_tokens,
        end_ids=frozenset(directory.eos_ids),
    )
    if engine == "openvino":
        return _openvino(parameters, directory.path, limits, in_process)
    return _synthetic(parameters, directory.path, limits)


def make_engine(
    parameters: Parameters,
    model_folder: str,
    observer: EngineObserver,
    after_turn: Callable[[], None] | None = None,
) -> Engine:
    """Load the engine that the parameters name, on a thread of its own.

    Args:
        parameters: of model `tensorrt_llm`.
        model_folder: the model's folder in the repository; relative engine paths start two above it.
        observer: is told what the engine does.
        after_turn: is called after every step (see `StepLoop`).

    Raises:
        InvalidArgument: a parameter is wrong or has no meaning for the engine; it is named.
    """
    return StepLoop(
        make_stepper(parameters, model_folder),
        max_waiting=parameters.integer("max_waiting_requests", minimum=1),
        poll_period_s=parameters.milliseconds("cancellation_check_period_ms"),
        max_chunks_per_s=parameters.number("max_responses_per_s"),
        tokens_per_chunk=parameters.integer("stream_interval", minimum=1),
        observer=observer,
        after_turn=after_turn,
    )


def _openvino(parameters: Parameters, directory: Path, limits: EngineLimits, in_process: bool) -> Stepper:
    from naiad.engines.openvino_settings import OpenVinoSettings

    settings = OpenVinoSettings(
        directory=directory,
        kv_tokens=limits.kv_capacity_tokens,
        kv_precision=parameters.choice("kv_cache_precision", "f32", "f16", "u8"),
        dynamic_quantization=parameters.flag("dynamic_quantization"),
        max_sequences=parameters.integer("max_num_sequences", minimum=1),
        max_num_tokens=parameters.integer("max_num_tokens", minimum=1),
        prefix_caching=parameters.flag("enable_kv_cache_reuse"),
        chunked_prefill=parameters.flag("enable_chunked_context"),
    )
    if in_process:
        from naiad.engines.openvino import OpenVinoStepper

        return OpenVinoStepper(settings, limits)
    from naiad.engines.worker import WorkerStepper

    return WorkerStepper(settings, limits)


def _llmapi(parameters: Parameters, directory: ModelDirectory, model_folder: str) -> Stepper:
    from naiad.engines.llmapi import LlmApiStepper
    from naiad.engines.llmapi_settings import LlmApiSettings, merged_options, read_options

    cache: dict[str, object] = {"enable_block_reuse": parameters.flag("enable_kv_cache_reuse")}
    kv_tokens = parameters.optional_integer("max_tokens_in_paged_kv_cache", minimum=64)
    if kv_tokens is not None:
        cache["max_tokens"] = kv_tokens
    if parameters.text("kv_cache_free_gpu_mem_fraction"):
        cache["free_gpu_memory_fraction"] = parameters.number("kv_cache_free_gpu_mem_fraction")
    policy = parameters.choice("batch_scheduler_policy", "guaranteed_no_evict", "max_utilization")
    stated = {
        "max_batch_size": parameters.integer("max_num_sequences", minimum=1),
        "max_num_tokens": parameters.integer("max_num_tokens", minimum=1),
        "enable_chunked_prefill": parameters.flag("enable_chunked_context"),
        "kv_cache_config": cache,
        "scheduler_config": {"capacity_scheduler_policy": policy.upper()},
    }
    file = parameters.text("llm_api_options")
    options = merged_options(stated, read_options(repository_path(file, model_folder)) if file else {})
    context = min(directory.context_length, options.get("max_seq_len") or directory.context_length)
    limits = EngineLimits(
        vocab_size=directory.vocab_size,
        max_seq_len=context,
        kv_capacity_tokens=kv_tokens or context,
        end_ids=frozenset(directory.eos_ids),
    )
    return LlmApiStepper(LlmApiSettings(directory.path, options), limits)


def _synthetic(parameters: Parameters, directory: Path, limits: EngineLimits) -> Stepper:
    from naiad.engines.synthetic import SyntheticStepper, SyntheticTiming
    from naiad.tokenization import Tokenizer

    script = parameters.text("synthetic_script")
    timing = SyntheticTiming(
        prefill_tokens_per_s=parameters.number("synthetic_prefill_tokens_per_s"),
        step_s=parameters.number("synthetic_step_ms") / 1000,
        step_per_sequence_s=parameters.number("synthetic_step_per_sequence_ms") / 1000,
        max_num_tokens=parameters.integer("max_num_tokens", minimum=1),
    )
    return SyntheticStepper(
        limits,
        timing,
        max_sequences=parameters.integer("max_num_sequences", minimum=1),
        script=Tokenizer.load(directory).encode(script, add_special_tokens=False) if script else (),
    )
