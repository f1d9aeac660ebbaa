"""What a checkpoint's `config.json` says of its sizes: parameters, KV cache, work a token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad_build.errors import SourceError, UnsupportedModelError

__all__ = ["Architecture", "architecture_of", "read_architecture"]


@dataclass(frozen=True, slots=True)
class _Family:
    """How the layers of a `model_type` differ from Llama's.

    Attributes:
        qkv_bias: query, key and value have biases.
        qk_norm: queries and keys are normalised per head.
        norms: normalisations a layer.
        tied: embedding and output matrix are one where the configuration does not say.
        expert_size: key of an expert's width.
        experts: key of their count.
        shared_expert_size: key of the width of the expert that every token passes.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    norms: int = 2
    tied: bool = False
    expert_size: str = ""
    experts: str = ""
    shared_expert_size: str = ""


# Only architectures whose count was compared with a published one (tests/unit/build/plan).
_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(),
    "mixtral": _Family(expert_size="intermediate_size", experts="num_local_experts"),
    "phi3": _Family(),
    "qwen2": _Family(qkv_bias=True),
    "qwen2_moe": _Family(
        qkv_bias=True,
        expert_size="moe_intermediate_size",
        experts="num_experts",
        shared_expert_size="shared_expert_intermediate_size",
    ),
    "qwen3": _Family(qk_norm=True),
    "qwen3_moe": _Family(qk_norm=True, expert_size="moe_intermediate_size", experts="num_experts"),
    "gemma": _Family(tied=True),
    "gemma2": _Family(norms=4, tied=True),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a decoder.

    Attributes:
        model_type: Hugging Face's name of the architecture.
        layers: decoder layers.
        hidden_size: width of the residual stream.
        intermediate_size: width of a dense layer's feed-forward part, or of one expert's.
        heads: query heads.
        kv_heads: key and value heads; fewer than `heads` with grouped-query attention.
        head_size: values a head.
        vocab_size: rows of the embedding.
        context_length: positions the model was made for.
        tied: embedding and output matrix are one.
        experts: of a layer; 0 where it is dense.
        experts_per_token: that a token passes.
        matrix_parameters: in the layers' matrices, which quantisation makes smaller.
        active_matrix_parameters: of those, what one token passes.
        other_parameters: embedding, output matrix, norms and biases, which keep 16 bits.
    """

    model_type: str
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    context_length: int
    tied: bool
    experts: int
    experts_per_token: int
    matrix_parameters: int
    active_matrix_parameters: int
    other_parameters: int

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.matrix_parameters + self.other_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters of a token's matrix products: the active matrices and the output matrix."""
        return self.active_matrix_parameters + self.vocab_size * self.hidden_size

    @property
    def kv_values_per_token(self) -> int:
        """Numbers the KV cache keeps a token: 2 x layers x KV heads x head size."""
        return 2 * self.layers * self.kv_heads * self.head_size


def read_architecture(path: Path) -> Architecture:
    """Read a checkpoint's configuration.

    Args:
        path: a `config.json`, or the folder that holds it.

    Raises:
        SourceError: it is missing, no JSON, or lacks a size; the message names it.
        UnsupportedModelError: the architecture is not one whose parameters are known to be counted right.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise SourceError(f"there is no {file}: name a checkpoint's folder or its config.json") from None
    except ValueError as error:
        raise SourceError(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise SourceError(f"{file} must hold a JSON object")
    return architecture_of(config, str(file))


def architecture_of(config: Mapping[str, Any], source: str) -> Architecture:
    """Return the sizes that a configuration states; see `read_architecture` for the errors.

    Args:
        config: content of a `config.json`.
        source: what errors call it.
    """
    sizes = _Sizes(config, source)
    model_type = sizes.get("model_type")
    family = _FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise UnsupportedModelError(
            f"the parameters of architecture {model_type!r} cannot be counted; known are "
            + ", ".join(sorted(_FAMILIES))
        )
    layers, hidden, vocab = (sizes.whole(key) for key in ("num_hidden_layers", "hidden_size", "vocab_size"))
    heads = sizes.whole("num_attention_heads")
    kv_heads = sizes.whole("num_key_value_heads", heads)
    head_size = sizes.whole("head_dim", max(hidden // heads, 1))
    if heads % kv_heads:
        raise SourceError(f"{heads} query heads cannot share {kv_heads} key and value heads evenly")
    tied = sizes.get("tie_word_embeddings")
    tied = family.tied if tied is None else bool(tied)

    query, key_value = heads * head_size, kv_heads * head_size
    attention = hidden * query + 2 * hidden * key_value + query * hidden
    bias = query + 2 * key_value if family.qkv_bias or sizes.get("attention_bias") is True else 0
    norms = family.norms * hidden + (2 * head_size if family.qk_norm else 0)
    experts = sizes.whole(family.experts) if family.experts else 0
    width = sizes.whole(family.expert_size or "intermediate_size")
    chosen = sizes.whole("num_experts_per_tok") if experts else 0
    shared = sizes.whole(family.shared_expert_size) if family.shared_expert_size else 0
    shared_matrices = 3 * hidden * shared
    expert = 3 * hidden * width  # gate, up and down
    router = hidden * experts + (hidden if shared else 0)
    feed_forward = experts * expert + shared_matrices if experts else expert
    active = chosen * expert + shared_matrices if experts else expert
    embedding = vocab * hidden
    return Architecture(
        model_type=str(model_type),
        layers=layers,
        hidden_size=hidden,
        intermediate_size=width,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocab_size=vocab,
        context_length=sizes.whole("max_position_embeddings"),
        tied=tied,
        experts=experts,
        experts_per_token=chosen,
        matrix_parameters=layers * (attention + feed_forward),
        active_matrix_parameters=layers * (attention + active),
        other_parameters=embedding * (1 if tied else 2) + layers * (norms + bias + router) + hidden,
    )


class _Sizes:
    """A configuration whose sizes are looked at one by one, so that an error can name the one at fault."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self._config = config
        self._source = source

    def get(self, key: str) -> Any:
        return self._config.get(key)

    def whole(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number."""
        value = self._config.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            found = "is missing" if value is None else f"is {json.dumps(value)}"
            raise SourceError(f"{self._source}: `{key}` {found}; it must be a whole number of 1 or more")
        return value
