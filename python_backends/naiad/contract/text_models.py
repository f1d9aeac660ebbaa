"""Models with text at an end: `preprocessing`, `postprocessing` and `tensorrt_llm_bls`."""

from __future__ import annotations

from naiad.contract.tensors import DataType, ModelSpec, ParameterSpec, TensorSpec

__all__ = ["POSTPROCESSING", "PREPROCESSING", "TENSORRT_LLM_BLS"]

BOOL, U8, U64, I32, I64 = DataType.BOOL, DataType.UINT8, DataType.UINT64, DataType.INT32, DataType.INT64
F16, F32, TEXT = DataType.FP16, DataType.FP32, DataType.STRING

_PREPROCESSING_INPUTS = (
    # Required upstream; optional here because `messages` may take its place (exactly one of the two).
    TensorSpec("QUERY", TEXT, (1,), optional=True),
    TensorSpec("MESSAGES", TEXT, (1,), optional=True, extension=True),
    TensorSpec("DECODER_QUERY", TEXT, (1,), optional=True),
    TensorSpec("IMAGE_BYTES", U8, (-1, -1, -1, -1), optional=True),
    TensorSpec("IMAGE_URL", TEXT, (1,), optional=True),
    TensorSpec("IMAGES", TEXT, (-1,), optional=True),
    TensorSpec("VIDEO_BYTES", U8, (-1, -1, -1, -1), optional=True),
    # Required upstream; optional here so that the model is reached and can say that it is missing.
    TensorSpec("REQUEST_OUTPUT_LEN", I32, (1,), optional=True),
    TensorSpec("BAD_WORDS_DICT", TEXT, (-1,), optional=True),
    TensorSpec("STOP_WORDS_DICT", TEXT, (-1,), optional=True),
    TensorSpec("EMBEDDING_BIAS_WORDS", TEXT, (-1,), optional=True),
    TensorSpec("EMBEDDING_BIAS_WEIGHTS", F32, (-1,), optional=True),
    TensorSpec("END_ID", I32, (1,), optional=True),
    TensorSpec("PAD_ID", I32, (1,), optional=True),
    TensorSpec("PROMPT_TABLE_EXTRA_ID", U64, (1,), optional=True),
)

_PREPROCESSING_OUTPUTS = (
    TensorSpec("INPUT_ID", I32, (-1,)),
    TensorSpec("REQUEST_INPUT_LEN", I32, (1,)),
    TensorSpec("DECODER_INPUT_ID", I32, (-1,)),
    TensorSpec("REQUEST_DECODER_INPUT_LEN", I32, (1,)),
    TensorSpec("BAD_WORDS_IDS", I32, (2, -1)),
    TensorSpec("STOP_WORDS_IDS", I32, (2, -1)),
    TensorSpec("EMBEDDING_BIAS", F32, (-1,)),
    TensorSpec("REQUEST_OUTPUT_LEN", I32, (-1,)),
    TensorSpec("OUT_END_ID", I32, (1,)),
    TensorSpec("OUT_PAD_ID", I32, (1,)),
    TensorSpec("OUT_PROMPT_TABLE_EXTRA_IDS", U64, (-1,)),
    TensorSpec("PIXEL_VALUES", F16, (-1, -1, -1, -1)),
    TensorSpec("ASPECT_RATIO_IDS", I64, (-1,)),
    TensorSpec("ASPECT_RATIO_MASK", I64, (-1, -1)),
    TensorSpec("CROSS_ATTENTION_MASK", I64, (-1, -1, -1)),
    TensorSpec("IMAGE_SIZES", I64, (-1, 2)),
    TensorSpec("IS_VIDEO_INPUT", BOOL, (1,)),
    TensorSpec("ATTENTION_MASK", I64, (-1,)),
    TensorSpec("IMAGE_GRID_THW", I64, (3,)),
    TensorSpec("VISION_INPUT_ID", I32, (-1,)),
)

_PREPROCESSING_PARAMETERS = (
    ParameterSpec("tokenizer_dir", None, "tokenizer (python runtime)"),
    ParameterSpec("add_special_tokens", "true", "BOS/EOS added while encoding the prompt"),
    ParameterSpec("multimodal_model_path", "", "vision engines"),
    ParameterSpec("gpt_model_path", "", "engine directory (template variable engine_dir)"),
    ParameterSpec("max_num_images", None, "cap on images"),
    ParameterSpec("hf_model_path", "", "HF model directory"),
)

PREPROCESSING = ModelSpec(
    name="preprocessing",
    summary="text or chat messages to token ids",
    inputs=_PREPROCESSING_INPUTS,
    outputs=_PREPROCESSING_OUTPUTS,
    parameters=_PREPROCESSING_PARAMETERS,
)


_POSTPROCESSING_INPUTS = (
    TensorSpec("TOKENS_BATCH", I32, (-1, -1)),
    TensorSpec("SEQUENCE_LENGTH", I32, (-1,)),
)

_POSTPROCESSING_OUTPUTS = (TensorSpec("OUTPUT", TEXT, (-1,)),)

_POSTPROCESSING_PARAMETERS = (
    ParameterSpec("tokenizer_dir", None, "tokenizer (python runtime)"),
    ParameterSpec("skip_special_tokens", "true", "drop special tokens while decoding"),
)

POSTPROCESSING = ModelSpec(
    name="postprocessing",
    summary="token ids to text, one string a sequence",
    inputs=_POSTPROCESSING_INPUTS,
    outputs=_POSTPROCESSING_OUTPUTS,
    parameters=_POSTPROCESSING_PARAMETERS,
)


_TENSORRT_LLM_BLS_INPUTS = (
    # Required upstream; optional here because `messages` may take its place (exactly one of the two).
    TensorSpec("text_input", TEXT, (1,), optional=True),
    TensorSpec("messages", TEXT, (1,), optional=True, extension=True),
    TensorSpec("decoder_text_input", TEXT, (1,), optional=True),
    TensorSpec("image_input", F16, (-1, 3, -1, -1), optional=True),
    TensorSpec("image_bytes_input", U8, (-1, -1, -1, -1), optional=True),
    TensorSpec("image_url_input", TEXT, (1,), optional=True),
    TensorSpec("video_bytes_input", U8, (-1, -1, -1, -1), optional=True),
    TensorSpec("max_tokens", I32, (1,)),
    TensorSpec("bad_words", TEXT, (-1,), optional=True),
    TensorSpec("stop_words", TEXT, (-1,), optional=True),
    TensorSpec("exclude_input_in_output", BOOL, (1,), optional=True),
    TensorSpec("end_id", I32, (1,), optional=True),
    TensorSpec("pad_id", I32, (1,), optional=True),
    TensorSpec("top_k", I32, (1,), optional=True),
    TensorSpec("top_p", F32, (1,), optional=True),
    TensorSpec("temperature", F32, (1,), optional=True),
    TensorSpec("length_penalty", F32, (1,), optional=True),
    TensorSpec("repetition_penalty", F32, (1,), optional=True),
    TensorSpec("min_tokens", I32, (1,), optional=True),
    TensorSpec("presence_penalty", F32, (1,), optional=True),
    TensorSpec("frequency_penalty", F32, (1,), optional=True),
    TensorSpec("seed", U64, (1,), optional=True),
    TensorSpec("return_log_probs", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_context_logits", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_generation_logits", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("num_return_sequences", I32, (1,), optional=True, scalar=True),
    TensorSpec("beam_width", I32, (1,), optional=True),
    TensorSpec("stream", BOOL, (1,), optional=True),
    TensorSpec("prompt_embedding_table", F16, (-1, -1), optional=True),
    TensorSpec("prompt_vocab_size", I32, (1,), optional=True),
    TensorSpec("prompt_table_extra_id", U64, (1,), optional=True),
    TensorSpec("embedding_bias_words", TEXT, (-1,), optional=True),
    TensorSpec("embedding_bias_weights", F32, (-1,), optional=True),
    TensorSpec("num_draft_tokens", I32, (1,), optional=True),
    TensorSpec("use_draft_logits", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("lora_task_id", U64, (1,), optional=True, scalar=True),
    TensorSpec("lora_weights", F16, (-1, -1), optional=True, ragged=True),
    TensorSpec("lora_config", I32, (-1, 3), optional=True, ragged=True),
    TensorSpec("return_perf_metrics", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_num_input_tokens", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("return_num_output_tokens", BOOL, (1,), optional=True, scalar=True),
    TensorSpec("guided_decoding_guide_type", TEXT, (1,), optional=True),
    TensorSpec("guided_decoding_guide", TEXT, (1,), optional=True),
    TensorSpec("min_length", I32, (1,), optional=True, extension=True),
    TensorSpec("random_seed", U64, (1,), optional=True, extension=True),
)

_TENSORRT_LLM_BLS_OUTPUTS = (
    TensorSpec("text_output", TEXT, (-1,)),
    TensorSpec("cum_log_probs", F32, (-1,)),
    TensorSpec("output_log_probs", F32, (-1, -1)),
    TensorSpec("context_logits", F32, (-1, -1), variable="logits_datatype"),
    TensorSpec("generation_logits", F32, (-1, -1, -1), variable="logits_datatype"),
    TensorSpec("batch_index", I32, (1,)),
    TensorSpec("sequence_index", I32, (1,)),
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

_TENSORRT_LLM_BLS_PARAMETERS = (
    ParameterSpec(
        "accumulate_tokens",
        "false",
        "streaming: decode everything so far and return the whole text each time",
    ),
    ParameterSpec("tensorrt_llm_model_name", "tensorrt_llm", "model called through BLS"),
    ParameterSpec(
        "tensorrt_llm_draft_model_name", None, "draft model; needed as soon as num_draft_tokens is sent"
    ),
    ParameterSpec("multimodal_encoders_name", None, "vision model called before the LLM"),
    ParameterSpec(
        "tokenizer_dir", "", "prepared model directory (extension: the text path is in this process)", True
    ),
    ParameterSpec(
        "max_live_requests", "512", "requests served at once; more are refused with QUEUE_FULL", True
    ),
    ParameterSpec(
        "coalesce_when_behind",
        "true",
        "tokens that arrive while others are being sent travel together; false sends each response of the "
        "engine alone",
        True,
    ),
    ParameterSpec(
        "tensorrt_llm_backend",
        "python",
        "backend of the engine model; tensorrtllm, NVIDIA's own, has no finish_reason and no token channel",
        True,
    ),
    ParameterSpec("first_token_timeout_ms", "120000", "longest wait for the first token", True),
    ParameterSpec("idle_timeout_ms", "20000", "longest silence between tokens before ENGINE_STALLED", True),
    ParameterSpec("default_timeout_ms", "600000", "deadline of a request that states none", True),
    ParameterSpec("cancellation_check_period_ms", "50", "how often a client's cancel is looked for", True),
    ParameterSpec("stats_check_period_ms", "100", "how often metrics are pushed", True),
)

TENSORRT_LLM_BLS = ModelSpec(
    name="tensorrt_llm_bls",
    summary="text in, correct text deltas out, stop strings, cancellation",
    inputs=_TENSORRT_LLM_BLS_INPUTS,
    outputs=_TENSORRT_LLM_BLS_OUTPUTS,
    parameters=_TENSORRT_LLM_BLS_PARAMETERS,
)
