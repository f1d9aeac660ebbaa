"""Sampling values from tensors: ranges, aliases, and what no engine here can do, refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.contract.generation import SamplingParams
from naiad.serving.tensor_inputs import Array, TensorInputs

__all__ = ["MAX_OUTPUT_TOKENS", "encode_words", "read_sampling", "refuse_unsupported"]

MAX_OUTPUT_TOKENS = 2**20
_INT32_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1

UNSUPPORTED = (
    "encoder_input_features", "encoder_output_lengths", "draft_input_ids", "decoder_input_ids",
    "decoder_input_lengths", "draft_logits", "draft_acceptance_threshold", "embedding_bias",
    "prompt_embedding_table", "prompt_table_extra_ids", "prompt_vocab_size", "cross_attention_mask",
    "mrope_rotary_cos_sin", "mrope_position_deltas", "lora_task_id", "lora_weights", "lora_config",
    "context_phase_params", "skip_cross_attn_blocks", "retention_token_range_starts",
    "retention_token_range_ends", "retention_token_range_priorities", "retention_token_range_durations_ms",
    "retention_decode_priority", "retention_decode_duration_ms", "guided_decoding_guide_type",
    "guided_decoding_guide", "lookahead_window_size", "lookahead_ngram_size",
    "lookahead_verification_set_size",
)  # fmt: skip

# Settings that only beam search or top-p decay give a meaning to: fine as long as they change nothing.
NEUTRAL: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "len_penalty": (0.0, 1.0),
        "early_stopping": (0.0,),
        "beam_search_diversity_rate": (0.0,),
        "runtime_top_p_min": (0.0,),
        "runtime_top_p_decay": (0.0, 1.0),
        "runtime_top_p_reset_ids": (-1.0,),
    }
)

_FLAGS = ("return_context_logits", "return_generation_logits")


def refuse_unsupported(inputs: TensorInputs, max_beam_width: int) -> None:
    """Raise for the first tensor that asks for what the Python engines cannot do.

    Raises:
        Unsupported: the tensor is named.
        InvalidArgument: the beam width exceeds the model's.
    """
    for name in UNSUPPORTED:
        if inputs.given(name):
            raise Unsupported(f"input {inputs.called(name)} is not supported by this engine; leave it out")
    for name, neutral in NEUTRAL.items():
        if inputs.given(name) and not np.isin(inputs.tensors[name].astype(np.float64), neutral).all():
            allowed = " or ".join(f"{value:g}" for value in neutral)
            raise Unsupported(
                f"input {inputs.called(name)} is not supported by this engine; leave it out or send {allowed}"
            )
    for name in _FLAGS:
        if inputs.given(name) and inputs.tensors[name].any():
            raise Unsupported(
                f"input {inputs.called(name)} is not supported by this engine; leave it out or send false"
            )
    for row in range(inputs.batch_size):
        inputs.integer("beam_width", row, minimum=1, maximum=max_beam_width)


def read_sampling(inputs: TensorInputs, row: int, model_end_ids: frozenset[int]) -> SamplingParams:
    """Read the sampling values of one row of `tensorrt_llm`'s inputs.

    An `end_id` that is one of the model's own end ids stands for all of them (chat models end a turn and a
    text with different ids); another one stands for itself; absent or negative, nothing ends the sequence
    but a stop word or the length.

    Raises:
        InvalidArgument: a value is out of range; the tensor and the range are named.
    """
    max_tokens = inputs.integer("request_output_len", row, minimum=1, maximum=MAX_OUTPUT_TOKENS)
    if max_tokens is None:
        raise InvalidArgument("request_output_len is missing")
    end_id = inputs.integer("end_id", row, minimum=-1, maximum=_INT32_MAX)
    top_p = inputs.number("runtime_top_p", row, minimum=0.0, maximum=1.0)
    temperature = inputs.number("temperature", row, minimum=0.0, maximum=100.0)
    min_tokens = inputs.alias("min_tokens", "min_length", row, maximum=MAX_OUTPUT_TOKENS) or 0
    if min_tokens > max_tokens:
        raise InvalidArgument(f"min_tokens {min_tokens} exceeds the {max_tokens} output tokens asked for")
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=1.0 if temperature is None else temperature,
        top_k=inputs.integer("runtime_top_k", row, minimum=0, maximum=_INT32_MAX) or 0,
        top_p=top_p or None,  # 0 is "not set" in TensorRT-LLM
        repetition_penalty=_or_one(
            inputs.number("repetition_penalty", row, minimum=0.0, maximum=100.0, above=True)
        ),
        presence_penalty=inputs.number("presence_penalty", row, minimum=-2.0, maximum=2.0) or 0.0,
        frequency_penalty=inputs.number("frequency_penalty", row, minimum=-2.0, maximum=2.0) or 0.0,
        seed=inputs.alias("seed", "random_seed", row, maximum=_UINT64_MAX),
        end_ids=_end_ids(end_id, model_end_ids),
        stop_sequences=_decode_words("stop_words_list", inputs.row("stop_words_list", row)),
        bad_sequences=_decode_words("bad_words_list", inputs.row("bad_words_list", row)),
        log_probs=inputs.flag("return_log_probs", row) or False,
    )


def _or_one(value: float | None) -> float:
    return 1.0 if value is None else value


def _end_ids(end_id: int | None, model_end_ids: frozenset[int]) -> frozenset[int]:
    if end_id is None or end_id < 0:
        return frozenset()
    return model_end_ids if end_id in model_end_ids else frozenset({end_id})


def _decode_words(name: str, row: Array | None) -> tuple[tuple[int, ...], ...]:
    """Read `[2, N]`: ids of all words in a row, and the end offset of each word, padded with -1.

    Raises:
        InvalidArgument: the shape is not [2, N], or the offsets do not rise within N.
    """
    if row is None:
        return ()
    if row.ndim != 2 or row.shape[0] != 2:
        raise InvalidArgument(f"{name} must have shape [2, N] per request, not {list(row.shape)}")
    ids, offsets = row.astype(np.int64).tolist()
    words, start = [], 0
    for end in offsets:
        if end < 0:
            break
        if not start < end <= len(ids):
            raise InvalidArgument(
                f"{name}: offsets must rise and stay within {len(ids)}, but {end} follows {start}"
            )
        words.append(tuple(ids[start:end]))
        start = end
    if len(words) > 1024:
        raise InvalidArgument(f"{name} holds {len(words)} words; at most 1024 are taken")
    return tuple(words)


def encode_words(words: list[list[list[int]]]) -> Array:
    """Write the words of every batch row as `[B, 2, N]` INT32, as `_decode_words` reads them."""
    flat = [[token for word in row for token in word] for row in words]
    width = max(map(len, flat), default=0)
    array = np.zeros((len(words), 2, width), dtype=np.int32)
    array[:, 1, :] = -1
    for index, row in enumerate(words):
        array[index, 0, : len(flat[index])] = flat[index]
        array[index, 1, : len(row)] = np.cumsum([len(word) for word in row], dtype=np.int32)
    return array
