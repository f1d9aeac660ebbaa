"""A prepared model directory in miniature: a byte-level tokenizer and what the synthetic engine reads."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

__all__ = ["CONTEXT", "END", "OTHER_END", "write_tiny_model"]

CONTEXT = 512
END, OTHER_END = 0, 1  # token ids of <|im_end|> (the main one) and <|endoftext|>
_SPECIAL = ["<|im_end|>", "<|endoftext|>", "<|im_start|>"]
_TEXTS = [
    "The quick brown fox jumps over the lazy dog. STOP here, or stop there!",
    "user assistant system: one two three four five six seven eight nine ten",
    "Größe, naïve café, Ελληνικά, русский язык, 你好世界, 👩‍👩‍👧 family",
] * 4
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(directory: Path) -> Path:
    """Write the model to `directory` (made if need be) and return it; every byte is a token of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(_TEXTS, trainer)
    library.save(str(directory / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>"},
        "generation_config.json": {"eos_token_id": [END, OTHER_END], "pad_token_id": END},
        "config.json": {
            "model_type": "llama",
            "vocab_size": library.get_vocab_size(),
            "max_position_embeddings": CONTEXT,
            "eos_token_id": END,
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    (directory / "chat_template.jinja").write_text(_TEMPLATE)
    return directory
