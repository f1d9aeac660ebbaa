"""The tokenizer's part of a prepared model directory, read and checked once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from naiad.contract.errors import InvalidArgument

__all__ = ["TokenizerFiles"]

_TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_GENERATION = "generation_config.json"
_TEMPLATE = "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What the files say, before it is compared with the vocabulary.

    Attributes:
        library_json: content of tokenizer.json.
        config: content of tokenizer_config.json.
        generation: content of generation_config.json; empty when there is none.
        template: the chat template's source; None when the model has none.
    """

    library_json: str
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    template: str | None

    @classmethod
    def read(cls, directory: Path) -> TokenizerFiles:
        """Read the files of `directory`.

        Raises:
            InvalidArgument: a needed file is missing or malformed; names the file.
        """
        config = _object(directory / _CONFIG)
        generation = directory / _GENERATION
        template = directory / _TEMPLATE
        return cls(
            library_json=_text(directory / _TOKENIZER),
            config=config,
            generation=_object(generation) if generation.exists() else {},
            template=_text(template) if template.exists() else _template_in(config),
        )

    def library(self) -> tokenizers.Tokenizer:
        """Build a tokenizer that neither cuts nor pads.

        Raises:
            InvalidArgument: tokenizer.json does not describe a tokenizer.
        """
        try:
            library = tokenizers.Tokenizer.from_str(self.library_json)
        except Exception as error:
            raise InvalidArgument(f"{_TOKENIZER} is not a tokenizer: {error}") from error
        library.no_truncation()
        library.no_padding()
        return library

    def token(self, name: str) -> str | None:
        """Return the text of a special token of tokenizer_config.json, such as ``eos_token``.

        Raises:
            InvalidArgument: the entry is neither text nor an added token's object.
        """
        value = self.config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{_CONFIG}: {name} must be text, not {type(value).__name__}")
        return value

    def flag(self, name: str) -> bool | None:
        """Return a boolean of tokenizer_config.json; None when it says nothing.

        Raises:
            InvalidArgument: the entry is not a boolean.
        """
        value = self.config.get(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidArgument(f"{_CONFIG}: {name} must be true or false, not {type(value).__name__}")
        return value

    def ids(self, name: str) -> tuple[int, ...]:
        """Return the token ids that generation_config.json has under `name` (one or a list); empty when none.

        Raises:
            InvalidArgument: something there is not a token id.
        """
        value = self.generation.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        for token_id in values:
            if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0:
                raise InvalidArgument(f"{_GENERATION}: {name} holds {token_id!r}, which is not a token id")
        return tuple(dict.fromkeys(values))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidArgument(f"the model directory has no {path.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path.name} cannot be read: {type(error).__name__}") from error


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{path.name} is not valid JSON: {error.msg} (line {error.lineno})") from error
    if not isinstance(value, dict):
        raise InvalidArgument(f"{path.name} must hold a JSON object")
    return value


def _template_in(config: Mapping[str, Any]) -> str | None:
    """The template of tokenizer_config.json: text, or a list of named ones of which ``default`` is meant."""
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{_CONFIG}: chat_template must be text or a list of named templates")
    return value
