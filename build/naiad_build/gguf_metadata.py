"""What a GGUF file says about its model and tokenizer, checked and typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad_build.errors import UnsupportedModelError

__all__ = ["TOKEN_CONTROL", "TOKEN_UNKNOWN", "TOKEN_USER_DEFINED", "GgufMetadata", "read_gguf_metadata"]

# Token types of the GGUF specification (llama.cpp's llama_token_attr as stored).
TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE = range(1, 7)


@dataclass(frozen=True, slots=True)
class GgufMetadata:
    """The part of a GGUF header that the build needs.

    Attributes:
        architecture: `general.architecture`, for example ``llama``.
        name: `general.name`, or the file's stem.
        quantization: name of the most common file type, for example ``Q4_1``; None when not stated.
        tokenizer_model: `tokenizer.ggml.model`: ``gpt2`` is byte-level BPE, ``llama`` is SentencePiece.
        pre_tokenizer: `tokenizer.ggml.pre`; ``default`` when absent, as llama.cpp reads it.
        tokens: every token's text; the index is the id.
        token_types: one GGUF token type a token.
        scores: one score a token (SentencePiece), or empty.
        merges: byte-pair merges, best first (BPE), or empty.
        eos_like_ids: the end-of-turn and end-of-message ids the header names beside `eos_id`.
        hyperparameters: the architecture's own keys without the ``<architecture>.`` prefix.
    """

    architecture: str
    name: str
    quantization: str | None
    tokenizer_model: str
    pre_tokenizer: str
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[str, ...]
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None
    eos_like_ids: tuple[int, ...]
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None
    chat_template: str | None
    hyperparameters: dict[str, Any]

    @property
    def context_length(self) -> int:
        """Tokens the model was made for."""
        return int(self.hyperparameters["context_length"])

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding: token ids are below this."""
        return int(self.hyperparameters.get("vocab_size", len(self.tokens)))


def read_gguf_metadata(path: Path) -> GgufMetadata:
    """Read the header of the GGUF file at `path` (about a second per 50,000 tokens).

    Raises:
        UnsupportedModelError: the file is not GGUF, is cut short, or has no tokenizer in it.
    """
    import gguf  # slow to import, and only a build needs it

    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise UnsupportedModelError(
            f"{path} cannot be read as a GGUF file ({error}); is it complete?"
        ) from error
    fields: dict[str, Any] = {key: field.contents() for key, field in reader.fields.items()}
    return _typed(path, fields, gguf.LlamaFileType)


def _typed(path: Path, fields: dict[str, Any], file_types: Any) -> GgufMetadata:
    architecture = _required(path, fields, "general.architecture")
    tokens = tuple(_required(path, fields, "tokenizer.ggml.tokens"))
    _required(path, fields, f"{architecture}.context_length")
    types = tuple(fields.get("tokenizer.ggml.token_type") or (TOKEN_NORMAL,) * len(tokens))
    scores = tuple(fields.get("tokenizer.ggml.scores") or ())
    if len(types) != len(tokens) or (scores and len(scores) != len(tokens)):
        raise UnsupportedModelError(
            f"{path} is damaged: {len(tokens)} tokens but {len(types)} types and {len(scores)} scores"
        )
    prefix = f"{architecture}."
    return GgufMetadata(
        architecture=architecture,
        name=fields.get("general.name") or path.stem,
        quantization=_quantization(fields.get("general.file_type"), file_types),
        tokenizer_model=_required(path, fields, "tokenizer.ggml.model"),
        pre_tokenizer=fields.get("tokenizer.ggml.pre") or "default",
        tokens=tokens,
        token_types=types,
        scores=scores,
        merges=tuple(fields.get("tokenizer.ggml.merges") or ()),
        bos_id=_token_id(path, fields, "bos", len(tokens)),
        eos_id=_token_id(path, fields, "eos", len(tokens)),
        pad_id=_token_id(path, fields, "padding", len(tokens)),
        unk_id=_token_id(path, fields, "unknown", len(tokens)),
        eos_like_ids=tuple(
            found
            for kind in ("eot", "eom")
            if (found := _token_id(path, fields, kind, len(tokens))) is not None
        ),
        add_bos=fields.get("tokenizer.ggml.add_bos_token"),
        add_eos=fields.get("tokenizer.ggml.add_eos_token"),
        add_space_prefix=fields.get("tokenizer.ggml.add_space_prefix"),
        chat_template=fields.get("tokenizer.chat_template"),
        hyperparameters={
            key.removeprefix(prefix): value for key, value in fields.items() if key.startswith(prefix)
        },
    )


def _required(path: Path, fields: dict[str, Any], key: str) -> Any:
    if fields.get(key) is None:
        raise UnsupportedModelError(f"{path} has no `{key}`: it is not a complete language model")
    return fields[key]


def _token_id(path: Path, fields: dict[str, Any], kind: str, vocab_size: int) -> int | None:
    value = fields.get(f"tokenizer.ggml.{kind}_token_id")
    if value is None:
        return None
    if not 0 <= value < vocab_size:
        raise UnsupportedModelError(f"{path}: {kind} token id {value} is outside its {vocab_size} tokens")
    return int(value)


def _quantization(file_type: int | None, file_types: Any) -> str | None:
    known = {member.value: member.name for member in file_types}
    name = known.get(file_type)
    return None if name is None else str(name).removeprefix("MOSTLY_").removeprefix("ALL_")
