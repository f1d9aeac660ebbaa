"""Writes Hugging Face tokenizer and config files from what a GGUF header holds.

The pre-tokenizers follow llama.cpp (`llm_tokenizer_bpe` in src/llama-vocab.cpp), because that is what the
`tokenizer.ggml.pre` names mean. An unknown name is refused: a wrong split gives fluent-looking nonsense.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from naiad_build.errors import UnsupportedModelError
from naiad_build.gguf_metadata import TOKEN_CONTROL, TOKEN_UNKNOWN, TOKEN_USER_DEFINED, GgufMetadata

__all__ = ["build_tokenizer", "end_of_text_ids", "write_tokenizer_files"]

_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_LLAMA3_SPLIT = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL

# `tokenizer.ggml.pre` -> the splits made in turn before byte-level BPE.
_SPLITS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2_SPLIT, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2_SPLIT,),
    "smollm": (r"\p{N}", _GPT2_SPLIT),
    "qwen2": (_QWEN2_SPLIT,),
    "llama-bpe": (_LLAMA3_SPLIT,),
    "llama3": (_LLAMA3_SPLIT,),
}
_LLAMA3 = ("llama-bpe", "llama3")

# Control tokens with these texts end an answer whatever the header's eos id says, as in llama.cpp.
_END_MARKS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "</s>",
    "<EOT>", "<|end|>", "<end_of_utterance>", "<｜end▁of▁sentence｜>",
)  # fmt: skip


def build_tokenizer(metadata: GgufMetadata) -> Tokenizer:
    """Return the tokenizer that `metadata` describes.

    Raises:
        UnsupportedModelError: the tokenizer kind or pre-tokenizer is not one this module builds exactly.
    """
    vocabulary = {token: index for index, token in enumerate(metadata.tokens)}
    if len(vocabulary) != len(metadata.tokens):
        twice = len(metadata.tokens) - len(vocabulary)
        raise UnsupportedModelError(f"{metadata.name}: {twice} tokens share a text and would be lost")
    if metadata.tokenizer_model != "gpt2":
        raise UnsupportedModelError(
            f"{metadata.name}: tokenizer kind `{metadata.tokenizer_model}` (`llama` is SentencePiece) is not "
            "built from GGUF, only `gpt2` (byte-level BPE). Use the model's original checkpoint: "
            "naiad build prepare hf:OWNER/NAME, or dir:PATH with a tokenizer.json in it"
        )
    tokenizer = _byte_level_bpe(metadata, vocabulary)
    _add_special_tokens(tokenizer, metadata)
    return tokenizer


def _byte_level_bpe(metadata: GgufMetadata, vocabulary: dict[str, int]) -> Tokenizer:
    splits = _SPLITS.get(metadata.pre_tokenizer)
    if splits is None:
        raise UnsupportedModelError(
            f"{metadata.name}: pre-tokenizer `{metadata.pre_tokenizer}` is not known here, only "
            f"{', '.join(sorted(_SPLITS))}; a wrong one would change what the model reads"
        )
    if not metadata.merges:
        raise UnsupportedModelError(f"{metadata.name}: a byte-level BPE tokenizer without merges")
    merges = []
    for merge in metadata.merges:
        left, separator, right = merge.partition(" ")
        if (
            not separator
            or left not in vocabulary
            or right not in vocabulary
            or left + right not in vocabulary
        ):
            raise UnsupportedModelError(
                f"{metadata.name}: merge {merge!r} does not join two tokens into a third"
            )
        merges.append((left, right))
    # llama.cpp looks a whole word up before merging for Llama 3 only.
    model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=metadata.pre_tokenizer in _LLAMA3)
    tokenizer = Tokenizer(model)
    if metadata.pre_tokenizer == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in splits]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _add_special_tokens(tokenizer: Tokenizer, metadata: GgufMetadata) -> None:
    added = [
        AddedToken(token, special=kind != TOKEN_USER_DEFINED, normalized=False)
        for token, kind in zip(metadata.tokens, metadata.token_types, strict=True)
        if kind in (TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED)
    ]
    # Special or not is kept by each token itself; one call keeps the order of ids.
    tokenizer.add_tokens(added)
    if tokenizer.get_vocab_size() != len(metadata.tokens):
        raise UnsupportedModelError(
            f"{metadata.name}: building its tokenizer changed the vocabulary from {len(metadata.tokens)} to "
            f"{tokenizer.get_vocab_size()} tokens"
        )
    bos, eos = _ends_added(metadata)
    byte_level = processors.ByteLevel(trim_offsets=False)
    if not bos and not eos:
        tokenizer.post_processor = byte_level
        return
    tokenizer.post_processor = processors.Sequence(
        [
            byte_level,
            processors.TemplateProcessing(
                single=[*bos, "$A", *eos],
                pair=[*bos, "$A", "$B", *eos],
                special_tokens=[(token, tokenizer.token_to_id(token)) for token in (*bos, *eos)],
            ),
        ]
    )


def _ends_added(metadata: GgufMetadata) -> tuple[list[str], list[str]]:
    bos = [metadata.tokens[metadata.bos_id]] if adds_bos(metadata) and metadata.bos_id is not None else []
    eos = [metadata.tokens[metadata.eos_id]] if metadata.add_eos and metadata.eos_id is not None else []
    return bos, eos


def adds_bos(metadata: GgufMetadata) -> bool:
    """Whether plain text starts with the bos token; llama.cpp's default is yes for Llama 3 only."""
    return metadata.pre_tokenizer in _LLAMA3 if metadata.add_bos is None else metadata.add_bos


def end_of_text_ids(metadata: GgufMetadata) -> tuple[int, ...]:
    """Return the ids that end an answer: the header's eos first, then every other end-of-turn token.

    Raises:
        UnsupportedModelError: the model has no such token, so that no answer would ever end.
    """
    special = (TOKEN_CONTROL, TOKEN_USER_DEFINED)
    marked = [
        index
        for index, (token, kind) in enumerate(zip(metadata.tokens, metadata.token_types, strict=True))
        if kind in special and token in _END_MARKS
    ]
    first = [] if metadata.eos_id is None else [metadata.eos_id]
    ids = tuple(dict.fromkeys([*first, *metadata.eos_like_ids, *marked]))
    if not ids:
        raise UnsupportedModelError(f"{metadata.name} names no end-of-text token")
    return ids


def write_tokenizer_files(metadata: GgufMetadata, directory: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json, chat_template.jinja and the two model configs.

    Raises:
        UnsupportedModelError: as `build_tokenizer` and `end_of_text_ids`.
    """
    tokenizer = build_tokenizer(metadata)
    eos_ids = end_of_text_ids(metadata)
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    _write_json(directory / "tokenizer_config.json", _tokenizer_config(metadata, eos_ids[0]))
    _write_json(
        directory / "generation_config.json",
        _without_none(
            bos_token_id=metadata.bos_id,
            eos_token_id=list(eos_ids),
            pad_token_id=_pad_id(metadata, eos_ids[0]),
        ),
    )
    _write_json(directory / "config.json", _model_config(metadata, eos_ids[0]))
    if metadata.chat_template is not None:
        (directory / "chat_template.jinja").write_text(metadata.chat_template, encoding="utf-8")


def _pad_id(metadata: GgufMetadata, eos_id: int) -> int:
    return eos_id if metadata.pad_id is None else metadata.pad_id


def _tokenizer_config(metadata: GgufMetadata, eos_id: int) -> dict[str, Any]:
    def text(index: int | None) -> str | None:
        return None if index is None else metadata.tokens[index]

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata.context_length,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": adds_bos(metadata),
        "add_eos_token": bool(metadata.add_eos),
        **_without_none(
            bos_token=text(metadata.bos_id),
            eos_token=text(eos_id),
            pad_token=text(_pad_id(metadata, eos_id)),
            unk_token=text(metadata.unk_id),
        ),
    }


def _model_config(metadata: GgufMetadata, eos_id: int) -> dict[str, Any]:
    get = metadata.hyperparameters.get
    return _without_none(
        model_type=metadata.architecture,
        vocab_size=metadata.vocab_size,
        max_position_embeddings=metadata.context_length,
        hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_theta=get("rope.freq_base"),
        bos_token_id=metadata.bos_id,
        eos_token_id=eos_id,
        pad_token_id=_pad_id(metadata, eos_id),
    )


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
