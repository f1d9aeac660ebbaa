"""YAML from outside, read strictly: unknown keys are refused with the nearest known one, doubled ones too."""

from __future__ import annotations

import difflib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from naiad_perf.errors import ScenarioError

__all__ = ["NAME_PATTERN", "StrictModel", "read_yaml", "validated"]

NAME_PATTERN = r"^[A-Za-z0-9](_?[A-Za-z0-9.-])*$"
"""Names that are part of file names, where `__` stands between two of them."""


class StrictModel(BaseModel):
    """A mapping whose values are of exactly the declared kinds and whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        """Name unknown keys and what was probably meant."""
        if not isinstance(value, dict):
            return value
        unknown = [str(key) for key in value if key not in cls.model_fields]
        if unknown:
            raise ValueError("; ".join(f"unknown key {key!r}{cls._hint(key)}" for key in unknown))
        return value

    @classmethod
    def _hint(cls, key: str) -> str:
        near = difflib.get_close_matches(key, cls.model_fields, n=1, cutoff=0.6)
        return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(cls.model_fields)}"


_Model = TypeVar("_Model", bound=BaseModel)


def validated(model: type[_Model], content: object, source: str) -> _Model:
    """Return `content` as `model`.

    Raises:
        ScenarioError: a value is wrong; the message has one line a fault, with its place.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = [each for each in error.errors() if each["type"] != "too_short" or not each["input"]]
        lines = [f"{'.'.join(map(str, each['loc']))}: {_said(each)}".removeprefix(": ") for each in faults]
        raise ScenarioError("\n  ".join([f"{source} is wrong:", *lines])) from error


def _said(fault: Any) -> str:
    if fault["type"] == "model_type":
        return f"must be a mapping of settings, not {fault['input']!r}"
    if fault["type"] == "too_short":
        return "must not be empty"
    if fault["type"] == "string_pattern_mismatch" and fault["ctx"]["pattern"] == NAME_PATTERN:
        return f"must be letters a to z, digits, `.`, `-` and single `_`, not {fault['input']!r}"
    if fault["type"] == "tuple_type":
        return "must be a list"
    text = str(fault["msg"]).removeprefix("Value error, ")
    given = fault.get("input")
    if fault["type"] in ("value_error", "missing") or isinstance(given, dict | list):
        return text
    return f"{text}, not {given!r}"


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ScenarioError: it is not there, not readable, not a mapping, or has a key twice.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)  # noqa: S506 (it is a SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} is not readable: {error}") from error
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ScenarioError(f"{path} must be a mapping of settings")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys without a word; here they are an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping.

        Raises:
            MarkedYAMLError: a key is there twice.
        """
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)
