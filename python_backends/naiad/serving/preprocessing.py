"""Model `preprocessing`: prompts, stop words and bad words to token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.serving.prompts import encode_prompt
from naiad.serving.sampling import encode_words
from naiad.serving.tensor_inputs import Array, TensorInputs, decode_text
from naiad.tokenization import Tokenizer

__all__ = ["preprocess"]

_VISION = ("IMAGE_BYTES", "IMAGE_URL", "IMAGES", "VIDEO_BYTES", "PROMPT_TABLE_EXTRA_ID")


def preprocess(inputs: TensorInputs, tokenizer: Tokenizer, *, add_special_tokens: bool) -> dict[str, Array]:
    """Return the output tensors of one request (see `contract.PREPROCESSING`).

    Rows of a batch are padded with the pad id; the true lengths stand in REQUEST_INPUT_LEN. Stop and bad
    words and the embedding bias are empty when none are given, as the upstream model has it.

    Raises:
        InvalidArgument: an input is malformed; it is named.
        Unsupported: an image, video or prompt-table input: no vision model is configured.
    """
    for name in _VISION:
        if inputs.given(name):
            raise Unsupported(f"input {name} is not supported: no vision model is configured")
    if not inputs.given("REQUEST_OUTPUT_LEN"):
        raise InvalidArgument("REQUEST_OUTPUT_LEN (of the ensemble: max_tokens) is missing")
    rows = range(inputs.batch_size)
    end_ids = [
        _or(inputs.integer("END_ID", row, minimum=-1, maximum=2**31 - 1), tokenizer.eos_ids[0])
        for row in rows
    ]
    pad_ids = [
        _or(inputs.integer("PAD_ID", row, minimum=-1, maximum=2**31 - 1), tokenizer.pad_id) for row in rows
    ]
    prompts = [
        encode_prompt(
            inputs, row, tokenizer, text="QUERY", messages="MESSAGES", add_special_tokens=add_special_tokens
        )
        for row in rows
    ]
    input_ids, lengths = _padded(prompts, pad_ids)
    tensors = {
        "INPUT_ID": input_ids,
        "REQUEST_INPUT_LEN": lengths,
        "STOP_WORDS_IDS": _words(inputs, "STOP_WORDS_DICT", tokenizer),
        "BAD_WORDS_IDS": _words(inputs, "BAD_WORDS_DICT", tokenizer),
        "EMBEDDING_BIAS": _embedding_bias(inputs, tokenizer),
        "REQUEST_OUTPUT_LEN": inputs.tensors["REQUEST_OUTPUT_LEN"],
        "OUT_END_ID": np.array(end_ids, dtype=np.int32).reshape(-1, 1),
        "OUT_PAD_ID": np.array(pad_ids, dtype=np.int32).reshape(-1, 1),
    }
    if inputs.given("DECODER_QUERY"):
        decoder = [tokenizer.encode(inputs.text("DECODER_QUERY", row) or "") for row in rows]
        tensors["DECODER_INPUT_ID"], tensors["REQUEST_DECODER_INPUT_LEN"] = _padded(decoder, pad_ids)
    return tensors


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _padded(prompts: Sequence[Sequence[int]], pad_ids: Sequence[int]) -> tuple[Array, Array]:
    width = max(map(len, prompts))
    ids = np.empty((len(prompts), width), dtype=np.int32)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = prompt
        ids[row, len(prompt) :] = pad_ids[row]
    return ids, np.array([[len(prompt)] for prompt in prompts], dtype=np.int32)


def _words(inputs: TensorInputs, name: str, tokenizer: Tokenizer) -> Array:
    return encode_words([tokenizer.encode_words(inputs.texts(name, row)) for row in range(inputs.batch_size)])


def _embedding_bias(inputs: TensorInputs, tokenizer: Tokenizer) -> Array:
    """Add each word's weight to every token of it, in a row as wide as the vocabulary."""
    if not inputs.given("EMBEDDING_BIAS_WORDS") and not inputs.given("EMBEDDING_BIAS_WEIGHTS"):
        return np.zeros((inputs.batch_size, 0), dtype=np.float32)
    bias = np.zeros((inputs.batch_size, tokenizer.vocab_size), dtype=np.float32)
    for row in range(inputs.batch_size):
        words, weights = inputs.row("EMBEDDING_BIAS_WORDS", row), inputs.row("EMBEDDING_BIAS_WEIGHTS", row)
        counts = [0 if values is None else values.size for values in (words, weights)]
        if words is None or weights is None or counts[0] != counts[1]:
            raise InvalidArgument(
                f"EMBEDDING_BIAS_WORDS holds {counts[0]} words but EMBEDDING_BIAS_WEIGHTS {counts[1]}"
            )
        # Rows with fewer words than others are filled up with empty ones, so each weight stays by its word.
        for raw, weight in zip(words.reshape(-1), weights.reshape(-1).tolist(), strict=True):
            for ids in tokenizer.encode_words([decode_text("EMBEDDING_BIAS_WORDS", raw)]):
                bias[row, ids] += weight
    return bias
