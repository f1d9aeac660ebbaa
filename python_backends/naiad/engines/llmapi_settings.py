"""Settings of the LLM API's engine: our parameters and its own YAML, as one set of keywords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from naiad.contract.errors import InvalidArgument

__all__ = ["LlmApiSettings", "merged_options", "read_options"]


@dataclass(frozen=True, slots=True)
class LlmApiSettings:
    """How `tensorrt_llm.LLM` is made.

    Attributes:
        directory: checkpoint in Hugging Face's layout.
        options: its other keywords, by the names of TensorRT-LLM's `TorchLlmArgs`; `max_batch_size` is one.
    """

    directory: Path
    options: Mapping[str, Any]


def read_options(path: Path) -> dict[str, Any]:
    """Read the YAML that `naiad build engine` writes for a profile of the LLM API.

    Raises:
        InvalidArgument: it is missing or no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"parameter llm_api_options: {path} cannot be read ({error.strerror}); "
            "`naiad build engine` writes it"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidArgument(f"parameter llm_api_options: {path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise InvalidArgument(f"parameter llm_api_options: {path} must be a mapping of settings")
    return content


def merged_options(stated: Mapping[str, Any], file: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Join what parameters state and what the YAML does.

    Raises:
        InvalidArgument: both state the same setting, differently.
    """
    merged = dict(file)
    for name, value in stated.items():
        there = merged.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            merged[name] = merged_options(value, there, f"{place}{name}.")
        elif there is None:
            merged[name] = dict(value) if isinstance(value, Mapping) else value
        elif there != value:
            raise InvalidArgument(
                f"llm_api_options says {place}{name} {there!r}, the model's parameters {value!r}: "
                "change one of them"
            )
    return merged
