"""Writes a GGUF that OpenVINO really loads: one layer, 64 wide, random weights; 0.2 MB.

Preparing it takes under 3 s, so tests need no weights from outside and no stand-in for the converter.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "Ġ the", "1 2", "12 3")
CONTEXT_LENGTH = 64
_WIDTH, _INNER, _HEADS = 64, 128, 2


def byte_alphabet() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes with, as GPT-2 defined them."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in kept]
    return [chr(byte) for byte in kept] + [chr(256 + position) for position in range(len(moved))]


def write_tiny_gguf(
    path: Path,
    *,
    pre: str | None = "gpt-2",
    tokenizer_model: str = "gpt2",
    merges: Sequence[str] = MERGES,
    add_bos: bool | None = False,
    user_defined: Sequence[str] = (),
    eos_id: int | None = 2,
    chat_template: str | None = "{{ messages[0]['content'] }}",
    all_bytes: bool = True,
    weights: bool = True,
) -> list[str]:
    """Write the file and return its tokens; with `all_bytes` false every token is readable ASCII."""
    plain = byte_alphabet() if all_bytes else [*(chr(code) for code in range(33, 127)), "Ġ"]
    tokens = [*SPECIALS, *plain, *(merge.replace(" ", "") for merge in merges), *user_defined]
    normal = len(tokens) - len(SPECIALS) - len(user_defined)
    writer: Any = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_file_type(0)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(tokenizer_model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL] * len(SPECIALS) + [NORMAL] * normal + [USER_DEFINED] * len(user_defined))
    if merges:
        writer.add_token_merges(list(merges))
    writer.add_bos_token_id(1)
    if eos_id is not None:
        writer.add_eos_token_id(eos_id)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    if weights:
        _add_weights(writer, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tokens


def _add_weights(writer: Any, vocab_size: int) -> None:
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.5).astype(np.float16))

    add("token_embd.weight", vocab_size, _WIDTH)
    add("output.weight", vocab_size, _WIDTH)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{name}.weight", _WIDTH, _WIDTH)
    add("blk.0.ffn_gate.weight", _INNER, _WIDTH)
    add("blk.0.ffn_up.weight", _INNER, _WIDTH)
    add("blk.0.ffn_down.weight", _WIDTH, _INNER)
