"""The types of `trtllm_schema.json`, in its own short notation, and whether a value is of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["explain_mismatch"]

_NUMBER = re.compile(r"(int|uint|size_t|float)\s*(?:(>=|>)\s*(\d+)|(\d+)\.\.(\d+)|bytes)?")
_TEXT = ("str", "string", "path", "Path", "dtype")


def explain_mismatch(kind: str, value: Any) -> str | None:
    """Return what a value of this kind must be, to be read after its name, or None if it is one.

    Args:
        kind: for example ``int>0``, ``float 0..1``, ``list[int]``, ``auto,slow``, ``KvCacheConfig``.
        value: as YAML or Python has it; None always passes, since every field may be left unset.
    """
    kind = re.sub(r"\s*\(.*\)$", "", kind)
    if value is None:
        return None
    number = _NUMBER.fullmatch(kind)
    if number:
        return _number_mismatch(number, value)
    check = _CHECKS.get(kind)
    if check is not None:
        return None if check[0](value) else check[1]
    options = [option.strip() for option in kind.split(",")]
    if any(_accepts(option, value) for option in options):
        return None
    return f"must be one of {', '.join(options)}" if len(options) > 1 else f"must be {kind}"


def _accepts(option: str, value: Any) -> bool:
    if option in _TEXT or option.endswith("TokenizerBase"):
        return isinstance(value, str)
    if option in _CHECKS or _NUMBER.fullmatch(option):
        return explain_mismatch(option, value) is None
    if isinstance(value, Mapping):
        return option[:1].isupper() and option.endswith("Config")
    return isinstance(value, str) and value == option


def _number_mismatch(kind: re.Match[str], value: Any) -> str | None:
    name, operator, bound, low, high = kind.groups()
    whole = name != "float"
    said = "must be a whole number" if whole else "must be a number"
    least = 0.0 if name in ("uint", "size_t") else None
    most = None
    if operator:
        least, said = float(bound), f"{said} {'above' if operator == '>' else 'of at least'} {bound}"
    elif low is not None:
        least, most, said = float(low), float(high), f"{said} from {low} to {high}"
    elif least is not None:
        said = f"{said} of at least 0"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return said
    below = least is not None and (value <= least if operator == ">" else value < least)
    return said if below or (most is not None and value > most) else None


def _is_list_of(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(item, value))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _is_int_list_text(value: Any) -> bool:
    return isinstance(value, int) or bool(re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", str(value)))


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "must be true or false"),
    "str": (_is_str, "must be text"),
    "string": (_is_str, "must be text"),
    "path": (_is_str, "must be a path"),
    "dtype": (_is_str, "must be a data type"),
    "str+": (lambda value: _is_str(value) or _is_list_of(_is_str)(value), "must be text, or a list of it"),
    "object": (lambda _: True, ""),
    "dict": (lambda value: isinstance(value, Mapping), "must be a mapping"),
    "dict[str,str]": (
        lambda value: isinstance(value, Mapping) and all(map(_is_str, (*value, *value.values()))),
        "must be a mapping of text to text",
    ),
    "dict[int,int]": (
        lambda value: isinstance(value, Mapping) and all(map(_is_int, (*value, *value.values()))),
        "must be a mapping of whole numbers to whole numbers",
    ),
    "list[int]": (_is_list_of(_is_int), "must be a list of whole numbers"),
    "list[int>0]": (
        _is_list_of(lambda item: _is_int(item) and item > 0),
        "must be a list of whole numbers above 0",
    ),
    "set[int]": (_is_list_of(_is_int), "must be a list of whole numbers"),
    "list[list[int]]": (_is_list_of(_is_list_of(_is_int)), "must be a list of lists of whole numbers"),
    "int list": (_is_int_list_text, "must be whole numbers between commas"),
    "list of int lists": (
        lambda value: bool(re.fullmatch(r"\s*\{[\d,\s]*\}(\s*,\s*\{[\d,\s]*\})*\s*", str(value))),
        "must be lists like {0,0},{0,1}",
    ),
}
