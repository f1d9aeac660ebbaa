"""From the text tensors of `tensorrt_llm_bls` to what its engine is asked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from naiad.contract import ENSEMBLE
from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.serving.engine_responses import PERF_METRICS
from naiad.serving.prompts import encode_prompt
from naiad.serving.sampling import MAX_OUTPUT_TOKENS, encode_words, read_sampling, refuse_unsupported
from naiad.serving.tensor_inputs import Array, TensorInputs
from naiad.tokenization import StopMatcher, Tokenizer

__all__ = ["TextRow", "read_text_rows"]

# Text-side name -> engine name, taken from the ensemble: one table for both ways of serving text.
_TEXT_SIDE = {spec.name for spec in ENSEMBLE.inputs}
_PASSED_ON = {
    text: engine
    for step in ENSEMBLE.steps
    if step.model == "tensorrt_llm"
    for engine, text in step.inputs.items()
    if text in _TEXT_SIDE
}
_SHOWN = {engine: text for text, engine in _PASSED_ON.items()} | {"request_output_len": "max_tokens"}
_ANY_BEAM_WIDTH = 1024  # the engine knows its own limit
# The BLS model decides these itself.
_OWN = {
    "exclude_input_in_output",
    "stream",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "num_return_sequences",
}
_VISION = ("image_input", "image_bytes_input", "image_url_input", "video_bytes_input")
# Zero and the empty string ask for nothing.
_UNSUPPORTED = (
    "decoder_text_input", "num_draft_tokens", "use_draft_logits", "prompt_table_extra_id",
    "embedding_bias_words", "embedding_bias_weights",
)  # fmt: skip
MAX_RETURN_SEQUENCES = 64


@dataclass(frozen=True, slots=True)
class TextRow:
    """One prompt of a request.

    Attributes:
        prompt_ids: its token ids.
        engine_inputs: tensors for the engine model, batch size 1.
        max_tokens: asked for.
        sequences: independent answers asked for.
        stop_words: strings that end an answer and are not part of it.
        batch_index: row of the request; None when it has one row only.
        streaming: deltas, or a single response.
        echo_prompt: put the prompt before the answer (single response only).
        log_probs: whether log probabilities were asked for.
        outputs: names of the outputs to send.
    """

    prompt_ids: tuple[int, ...]
    engine_inputs: dict[str, Array]
    max_tokens: int
    sequences: int
    stop_words: tuple[str, ...]
    batch_index: int | None
    streaming: bool
    echo_prompt: bool
    log_probs: bool
    outputs: frozenset[str]


def read_text_rows(
    inputs: TensorInputs, tokenizer: Tokenizer, *, requested_outputs: Collection[str], decoupled: bool
) -> list[TextRow]:
    """Read every prompt of a request.

    Raises:
        InvalidArgument: an input is malformed; it is named.
        Unsupported: an input that needs what is not configured, or streaming without decoupled mode.
    """
    for name in (*_VISION, *_UNSUPPORTED):
        if inputs.given(name) and (name in _VISION or inputs.tensors[name].any()):
            raise Unsupported(f"input {name} is not supported by this model; leave it out")
    return [
        _read_row(inputs, row, tokenizer, requested_outputs, decoupled) for row in range(inputs.batch_size)
    ]


def _read_row(
    inputs: TensorInputs, row: int, tokenizer: Tokenizer, requested_outputs: Collection[str], decoupled: bool
) -> TextRow:
    max_tokens = inputs.integer("max_tokens", row, minimum=1, maximum=MAX_OUTPUT_TOKENS)
    if max_tokens is None:
        raise InvalidArgument("max_tokens is missing")
    streaming = inputs.flag("stream", row) or False
    sequences = inputs.integer("num_return_sequences", row, minimum=1, maximum=MAX_RETURN_SEQUENCES) or 1
    if not decoupled and (streaming or sequences > 1):
        what = "stream" if streaming else "num_return_sequences above 1"
        raise Unsupported(f"{what} needs the decoupled profile of this model")
    stop_words = inputs.texts("stop_words", row)
    StopMatcher(stop_words)  # refuses what it cannot watch for, before the engine hears of the request
    prompt = encode_prompt(inputs, row, tokenizer, text="text_input", messages="messages")
    return TextRow(
        prompt_ids=tuple(prompt),
        engine_inputs=_engine_inputs(inputs, row, tokenizer, prompt, max_tokens, sequences),
        max_tokens=max_tokens,
        sequences=sequences,
        stop_words=stop_words,
        batch_index=row if inputs.batch_size > 1 else None,
        streaming=streaming,
        echo_prompt=not streaming and _wants_echo(inputs, row),
        log_probs=inputs.flag("return_log_probs", row) or False,
        outputs=_outputs(inputs, row, requested_outputs),
    )


def _wants_echo(inputs: TensorInputs, row: int) -> bool:
    """Upstream's default is to echo a text prompt; a rendered chat is echoed only when asked for."""
    exclude = inputs.flag("exclude_input_in_output", row)
    return not inputs.given("messages") if exclude is None else not exclude


def _engine_inputs(
    inputs: TensorInputs, row: int, tokenizer: Tokenizer, prompt: list[int], max_tokens: int, sequences: int
) -> dict[str, Array]:
    tensors: dict[str, Array] = {
        "input_ids": np.array([prompt], dtype=np.int32),
        "input_lengths": np.array([[len(prompt)]], dtype=np.int32),
        "request_output_len": np.array([[max_tokens]], dtype=np.int32),
        "end_id": np.array([[tokenizer.eos_ids[0]]], dtype=np.int32),
        "pad_id": np.array([[tokenizer.pad_id]], dtype=np.int32),
        "exclude_input_in_output": np.array([[True]]),
    }
    for text_name, engine_name in _PASSED_ON.items():
        if text_name not in _OWN and text_name in inputs.tensors:
            value = inputs.row(text_name, row)
            if value is None:
                raise InvalidArgument(f"{text_name} is empty; leave it out instead")
            tensors[engine_name] = value[np.newaxis] if value.ndim else value.reshape(1, 1)
    for text_name in ("end_id", "pad_id"):
        value = inputs.row(text_name, row)
        if value is not None:
            tensors[text_name] = value[np.newaxis]
    if sequences > 1:
        tensors["num_return_sequences"] = np.array([[sequences]], dtype=np.int32)
    bad_words = inputs.texts("bad_words", row)
    if bad_words:
        tensors["bad_words_list"] = encode_words([tokenizer.encode_words(bad_words)])
    # Checked here too, so that a refusal names the tensor that the caller sent, before the engine is called.
    check = TensorInputs(tensors, 1, _SHOWN)
    refuse_unsupported(check, max_beam_width=_ANY_BEAM_WIDTH)
    read_sampling(check, 0, frozenset(tokenizer.eos_ids))
    return tensors


_PRODUCED = frozenset(
    {"text_output", "cum_log_probs", "output_log_probs", "batch_index", "sequence_index", "finish_reason"}
)
_ON_DEMAND = ("num_input_tokens", "num_output_tokens")


def _outputs(inputs: TensorInputs, row: int, requested: Collection[str]) -> frozenset[str]:
    produced = set(_PRODUCED)
    produced.update(name for name in _ON_DEMAND if inputs.flag(f"return_{name}", row))
    if inputs.flag("return_perf_metrics", row):
        produced.update(PERF_METRICS)
    return frozenset(produced & (set(requested) or produced))
