"""Model `tensorrt_llm`: token ids in, token ids out (TensorRT-LLM 1.2.1 engine contract)."""

from __future__ import annotations

from naiad.contract.tensors import DataType, ModelSpec, ParameterSpec, TensorSpec

__all__ = ["TENSORRT_LLM"]

BOOL, U8, U64, I32, I64 = DataType.BOOL, DataType.UINT8, DataType.UINT64, DataType.INT32, DataType.INT64
F16, F32, TEXT = DataType.FP16, DataType.FP32, DataType.STRING

_INPUTS = (
    TensorSpec("input_ids", I32, (-1,), optional=True, ragged=True),
    TensorSpec(
        "encoder_input_features",
        F16,
        (-1, -1),
        optional=True,
        ragged=True,
        variable="encoder_input_features_data_type",
    ),
    TensorSpec("encoder_output_lengths", I32, (1,), optional=True, scalar=True),
    TensorSpec("input_lengths", I32, (1,), scalar=True),
    TensorSpec("request_output_len", I32, (1,), scalar=True),
    TensorSpec("num_return_sequences", I32, (1,), optional=True, scalar=True),
    TensorSpec("draft_input_ids", I32, (-1,), optional=True, ragged=True),
    TensorSpec("decoder_input_ids", I32, (-1,), optional=True, ragged=True),
    TensorSpec("decoder_input_lengths", I32, (1,), optional=True, scalar=True),
    TensorSpec("draft_logits", F32, (-1, -1), optional=True, ragged=True, variable="logits_datatype"),
    TensorSpec("draft_acceptance_threshold", F32, (1,), optional=True, scalar=True),
    TensorSpec("end_id", I32, (1,), optional=True, scalar=True),
    TensorSpec("pad_id", I32, (1,), optional=True, scalar=True),
    TensorSpec("stop_words_list", I32, (2, -1), optional=True, ragged=True),
    TensorSpec("bad_words_list", I32, (2, -1), optional=True, ragged=True),
    TensorSpec("embedding_bias", F32, (-1,), optional=True, ragged=True),
    TensorSpec("beam_width", I32, (1,), optional=True, scalar=True),
    TensorSpec("temperature", F32, (1,), optional=True, scalar=True),
    TensorSpec("runtime_top_k", I32, (1,), optional=True, scalar=True),
    TensorSpec("runtime_top_p", F32, (1,), optional=True, scalar=True),
    TensorSpec("runtime_top_p_min", F32, (1,), optional=True, scalar=True),
    TensorSpec("runtime_top_p_decay", F32, (1,), optional=True, scalar=True),
    TensorSpec("runtime_top_p_reset_ids", I32, (1,), optional=True, scalar=True),
    TensorSpec("len_penalty", F32, (1,), optional=True, scalar=True),
    TensorSpec("early_stopping", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("repetition_penalty", F32, (1,), optional=True, scalar=True),
    TensorSpec("min_tokens", I32, (1,), optional=True, scalar=True),
    TensorSpec("beam_search_diversity_rate", F32, (1,), optional=True, scalar=True),
    TensorSpec("presence_penalty", F32, (1,), optional=True, scalar=True),
    TensorSpec("frequency_penalty", F32, (1,), optional=True, scalar=True),
    TensorSpec("seed", U64, (1,), optional=True, scalar=True),
    TensorSpec("return_log_probs", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_context_logits", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_generation_logits", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_perf_metrics", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_num_input_tokens", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_num_output_tokens", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("exclude_input_in_output", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("stop", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("streaming", BOOL, (1,), optional=True, scalar=True),
    TensorSpec(
        "prompt_embedding_table",
        F16,
        (-1, -1),
        optional=True,
        ragged=True,
        variable="prompt_embedding_table_data_type",
    ),
    TensorSpec("prompt_table_extra_ids", U64, (-1,), optional=True, ragged=True),
    TensorSpec("prompt_vocab_size", I32, (1,), optional=True, scalar=True),
    TensorSpec("cross_attention_mask", BOOL, (-1, -1), optional=True, ragged=True),
    TensorSpec("mrope_rotary_cos_sin", F32, (-1,), optional=True),
    TensorSpec("mrope_position_deltas", I64, (1,), optional=True),
    TensorSpec("lora_task_id", U64, (1,), optional=True, scalar=True),
    TensorSpec("lora_weights", F16, (-1, -1), optional=True, ragged=True),
    TensorSpec("lora_config", I32, (-1, 3), optional=True, ragged=True),
    TensorSpec("context_phase_params", U8, (-1,), optional=True, ragged=True),
    TensorSpec("skip_cross_attn_blocks", BOOL, (1,), optional=True, ragged=True),
    TensorSpec("retention_token_range_starts", I32, (-1,), optional=True, ragged=True),
    TensorSpec("retention_token_range_ends", I32, (-1,), optional=True, ragged=True),
    TensorSpec("retention_token_range_priorities", I32, (-1,), optional=True, ragged=True),
    TensorSpec("retention_token_range_durations_ms", I32, (-1,), optional=True, ragged=True),
    TensorSpec("retention_decode_priority", I32, (1,), optional=True, ragged=True),
    TensorSpec("retention_decode_duration_ms", I32, (1,), optional=True, ragged=True),
    TensorSpec("guided_decoding_guide_type", TEXT, (1,), optional=True, ragged=True),
    TensorSpec("guided_decoding_guide", TEXT, (1,), optional=True, ragged=True),
    TensorSpec("lookahead_window_size", I32, (1,), optional=True, ragged=True),
    TensorSpec("lookahead_ngram_size", I32, (1,), optional=True, ragged=True),
    TensorSpec("lookahead_verification_set_size", I32, (1,), optional=True, ragged=True),
    # Names of releases up to 0.19; genai-perf still sends min_length.
    TensorSpec("min_length", I32, (1,), optional=True, scalar=True, extension=True),
    TensorSpec("random_seed", U64, (1,), optional=True, scalar=True, extension=True),
)

_OUTPUTS = (
    TensorSpec("output_ids", I32, (-1, -1)),
    TensorSpec("sequence_length", I32, (-1,)),
    TensorSpec("cum_log_probs", F32, (-1,)),
    TensorSpec("output_log_probs", F32, (-1, -1)),
    TensorSpec("context_logits", F32, (-1, -1), variable="logits_datatype"),
    TensorSpec("generation_logits", F32, (-1, -1, -1), variable="logits_datatype"),
    TensorSpec("batch_index", I32, (1,)),
    TensorSpec("sequence_index", I32, (1,)),
    TensorSpec("context_phase_params", U8, (-1,)),
    TensorSpec("kv_cache_alloc_new_blocks", I32, (1,)),
    TensorSpec("kv_cache_reused_blocks", I32, (1,)),
    TensorSpec("kv_cache_alloc_total_blocks", I32, (1,)),
    TensorSpec("arrival_time_ns", I64, (1,)),
    TensorSpec("first_scheduled_time_ns", I64, (1,)),
    TensorSpec("first_token_time_ns", I64, (1,)),
    TensorSpec("last_token_time_ns", I64, (1,)),
    TensorSpec("acceptance_rate", F32, (1,)),
    TensorSpec("total_accepted_draft_tokens", I32, (1,)),
    TensorSpec("total_draft_tokens", I32, (1,)),
    TensorSpec("num_input_tokens", I32, (1,)),
    TensorSpec("num_output_tokens", I32, (1,)),
    TensorSpec("finish_reason", TEXT, (1,), extension=True),
)

_PARAMETERS = (
    ParameterSpec("max_beam_width", "1", "largest beam width accepted"),
    ParameterSpec("FORCE_CPU_ONLY_INPUT_TENSORS", "no", "Triton core key: inputs stay on CPU"),
    ParameterSpec(
        "gpt_model_type",
        None,
        "batching mode (template variable batching_strategy); V1 is static batching",
    ),
    ParameterSpec("gpt_model_path", "", "engine directory (template variable engine_dir)"),
    ParameterSpec("encoder_model_path", "", "encoder engine directory (encoder_engine_dir)"),
    ParameterSpec(
        "max_tokens_in_paged_kv_cache", "", "KV pool size in tokens; with the fraction, the smaller wins"
    ),
    ParameterSpec("max_attention_window_size", "", "sliding window per layer"),
    ParameterSpec("sink_token_length", "", "attention sink tokens"),
    ParameterSpec(
        "batch_scheduler_policy",
        "guaranteed_no_evict",
        "guaranteed_no_evict reserves KV for the longest possible output; max_utilization may pause requests",
    ),
    ParameterSpec(
        "kv_cache_free_gpu_mem_fraction",
        "",
        "share of GPU memory left after engine load given to the KV pool",
    ),
    ParameterSpec("cross_kv_cache_fraction", "", "share of KV for cross attention"),
    ParameterSpec("kv_cache_host_memory_bytes", "0", "host offload pool"),
    ParameterSpec("kv_cache_onboard_blocks", "true", "copy host blocks back before use"),
    ParameterSpec("enable_trt_overlap", "false", "overlap micro-batches"),
    ParameterSpec(
        "exclude_input_in_output", "false", "non-streaming only; default from the model parameter (false)"
    ),
    ParameterSpec("cancellation_check_period_ms", "100", "poll interval for Triton-side cancellation"),
    ParameterSpec("stats_check_period_ms", "100", "poll interval for metrics"),
    ParameterSpec("iter_stats_max_iterations", "1000", "iteration stats kept"),
    ParameterSpec("request_stats_max_iterations", "0", "per-request stats kept"),
    ParameterSpec("enable_kv_cache_reuse", "true", "prefix reuse"),
    ParameterSpec("normalize_log_probs", "true", "log-prob normalisation for sampling"),
    ParameterSpec("enable_chunked_context", "false", "chunked prefill"),
    ParameterSpec("gpu_device_ids", "", "devices per instance"),
    ParameterSpec("participant_ids", "", "MPI ranks per instance"),
    ParameterSpec("num_nodes", "1", "nodes of the deployment"),
    ParameterSpec("lora_cache_optimal_adapter_size", "8", "rank the cache is sized for"),
    ParameterSpec("lora_cache_max_adapter_size", "64", "largest rank"),
    ParameterSpec("lora_cache_gpu_memory_fraction", "", "LoRA cache on GPU"),
    ParameterSpec("lora_cache_host_memory_bytes", "", "LoRA cache on host"),
    ParameterSpec("lora_prefetch_dir", "", "adapters loaded at start"),
    ParameterSpec("decoding_mode", "", "sampler family"),
    ParameterSpec(
        "executor_worker_path",
        "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
        "worker binary for spawned processes (worker_path is rejected with a hint)",
    ),
    ParameterSpec("lookahead_window_size", "", "all three together; model must be configured for lookahead"),
    ParameterSpec("lookahead_ngram_size", "", "as above"),
    ParameterSpec("lookahead_verification_set_size", "", "as above"),
    ParameterSpec("medusa_choices", "", "Medusa tree"),
    ParameterSpec("eagle_choices", "", "Eagle tree"),
    ParameterSpec("gpu_weights_percent", "1.0", "share of weights resident (weight streaming)"),
    ParameterSpec("enable_context_fmha_fp32_acc", "false", "runtime knob"),
    ParameterSpec("multi_block_mode", "true", "runtime knob"),
    ParameterSpec("cuda_graph_mode", "false", "CUDA graphs"),
    ParameterSpec("cuda_graph_cache_size", "0", "graphs kept"),
    ParameterSpec("speculative_decoding_fast_logits", "false", "fast draft-logit transfer"),
    ParameterSpec("tokenizer_dir", "", "tokenizer (python runtime)"),
    ParameterSpec("guided_decoding_backend", "", "guided decoding engine"),
    ParameterSpec("xgrammar_tokenizer_info_path", "", "tokenizer info for xgrammar"),
    ParameterSpec("recv_poll_period_ms", "0", "orchestrator receive poll"),
    # What the Python engines need beyond NVIDIA's keys.
    ParameterSpec(
        "engine",
        "openvino",
        "which Python engine runs: openvino, llmapi (TensorRT-LLM's LLM API) or synthetic",
        True,
    ),
    ParameterSpec(
        "llm_api_options", "", "llmapi engine: YAML of more settings, from `naiad build engine`", True
    ),
    ParameterSpec(
        "max_waiting_requests", "1024", "bound of the engine's waiting queue; more are refused", True
    ),
    ParameterSpec("max_num_sequences", "256", "sequences in one engine step", True),
    ParameterSpec(
        "max_num_tokens", "256", "prompt tokens prefilled in one step: the tail-latency knob", True
    ),
    ParameterSpec("kv_cache_precision", "f32", "f32, f16 or u8", True),
    ParameterSpec(
        "dynamic_quantization",
        "true",
        "INT8 activations: faster; false, with an f32 KV cache, makes tokens independent of batch neighbours",
        True,
    ),
    ParameterSpec(
        "max_responses_per_s",
        "0",
        "responses a second over all streams; beyond it tokens travel together, never the first; "
        "0 sends every token alone",
        True,
    ),
    ParameterSpec(
        "stream_interval",
        "1",
        "fewest tokens of a streamed response; the first token never waits, nor does the end of an answer",
        True,
    ),
    ParameterSpec(
        "synthetic_prefill_tokens_per_s", "20000", "synthetic engine: prefill speed; 0 is instant", True
    ),
    ParameterSpec("synthetic_step_ms", "0", "synthetic engine: time of a decode step", True),
    ParameterSpec(
        "synthetic_step_per_sequence_ms", "0", "synthetic engine: added per sequence of a step", True
    ),
    ParameterSpec(
        "synthetic_script", "", "synthetic engine: text to answer with; empty echoes the prompt", True
    ),
)

TENSORRT_LLM = ModelSpec(
    name="tensorrt_llm",
    summary="the engine: token ids in, token ids out, in-flight batching",
    inputs=_INPUTS,
    outputs=_OUTPUTS,
    parameters=_PARAMETERS,
)
