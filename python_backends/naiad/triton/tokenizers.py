"""The tokenizer a model's parameters name."""

from __future__ import annotations

from naiad.settings.model_directory import resolve_model_directory
from naiad.tokenization import Tokenizer
from naiad.triton.requests import ModelConfiguration

__all__ = ["load_tokenizer"]


def load_tokenizer(config: ModelConfiguration) -> Tokenizer:
    """Load from the parameter `tokenizer_dir`, relative to the folder that holds the model repository.

    Raises:
        InvalidArgument: the directory is missing or incomplete; the message says how to make it.
    """
    return Tokenizer.load(resolve_model_directory(config.parameters.text("tokenizer_dir"), config.folder))
