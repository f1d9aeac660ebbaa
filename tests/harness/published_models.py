"""Configurations of models people know, and what others have published of them.

Parameter counts: the totals that Hugging Face shows for each checkpoint's safetensors files.
"""

from __future__ import annotations

from typing import Any

from naiad_build.plan.architecture import Architecture, architecture_of

__all__ = ["CONFIGS", "PARAMETERS", "architecture"]


def _config(
    model_type: str,
    layers: int,
    hidden: int,
    intermediate: int,
    heads: int,
    kv_heads: int,
    vocab: int,
    **more: Any,
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": 131_072,
        **more,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-2-7B": _config("llama", 32, 4096, 11008, 32, 32, 32000, max_position_embeddings=4096),
    "Llama-2-70B": _config("llama", 80, 8192, 28672, 64, 8, 32000, max_position_embeddings=4096),
    "Llama-3.1-8B": _config("llama", 32, 4096, 14336, 32, 8, 128256),
    "Llama-3.1-70B": _config("llama", 80, 8192, 28672, 64, 8, 128256),
    "Llama-3.1-405B": _config("llama", 126, 16384, 53248, 128, 8, 128256),
    "Mistral-7B-v0.1": _config("mistral", 32, 4096, 14336, 32, 8, 32000, max_position_embeddings=32768),
    "Mixtral-8x7B": _config(
        "mixtral", 32, 4096, 14336, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2
    ),
    "Qwen2.5-0.5B": _config("qwen2", 24, 896, 4864, 14, 2, 151936, tie_word_embeddings=True),
    "Qwen2.5-7B": _config("qwen2", 28, 3584, 18944, 28, 4, 152064),
    "Qwen1.5-MoE-A2.7B": _config(
        "qwen2_moe", 24, 2048, 5632, 16, 16, 151936, num_experts=60, num_experts_per_tok=4,
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632,
    ),
    "Qwen3-0.6B": _config("qwen3", 28, 1024, 3072, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "Qwen3-30B-A3B": _config(
        "qwen3_moe", 48, 2048, 6144, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    "gemma-7b": _config("gemma", 28, 3072, 24576, 16, 16, 256000, head_dim=256),
    "gemma-2-9b": _config("gemma2", 42, 3584, 14336, 16, 8, 256000, head_dim=256),
    "Phi-3-mini-4k": _config("phi3", 32, 3072, 8192, 32, 32, 32064, max_position_embeddings=4096),
    "SmolLM2-135M": _config("llama", 30, 576, 1536, 9, 3, 49152, tie_word_embeddings=True),
}  # fmt: skip

PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mixtral-8x7B": 46_702_792_704,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-30B-A3B": 30_532_122_624,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "Phi-3-mini-4k": 3_821_079_552,
    "SmolLM2-135M": 134_515_008,
}


def architecture(name: str) -> Architecture:
    """Return the sizes of one of `CONFIGS`."""
    return architecture_of(CONFIGS[name], name)
