"""Chat messages from JSON, as OpenAI's API words them; everything doubtful is refused by name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from naiad.contract.errors import InvalidArgument

__all__ = ["MAX_JSON_DEPTH", "MAX_MESSAGES", "ROLES", "Message", "parse_messages"]

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 1024
MAX_JSON_DEPTH = 64

# A whole string (also an unterminated one, so that no text is scanned twice), or one bracket.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
# OpenAI's rule for names; keeps special tokens out of them.
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_NAME_FIELDS = ("name", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: one of `ROLES`.
        content: the text; several text parts are joined with a newline.
        name: who speaks, or which tool, where the caller says so.
        tool_call_id: the call that a tool message answers.
    """

    role: str
    content: str
    name: str | None = None
    tool_call_id: str | None = None


def parse_messages(raw: str | bytes) -> tuple[Message, ...]:
    """Read a JSON list of messages; linear in the size of `raw`.

    Fields that are null count as absent, and any field other than role, content, name and tool_call_id is
    refused rather than ignored.

    Raises:
        InvalidArgument: malformed JSON or messages; says what and where.
    """
    body = _loaded(_decoded(raw))
    if not isinstance(body, list):
        raise InvalidArgument(f"messages must be a JSON list, not {_kind(body)}")
    if not body:
        raise InvalidArgument("messages is an empty list; at least one message is needed")
    if len(body) > MAX_MESSAGES:
        raise InvalidArgument(f"messages has {len(body)} entries, the limit is {MAX_MESSAGES}")
    return tuple(_message(entry, f"messages[{index}]") for index, entry in enumerate(body))


def _decoded(raw: str | bytes) -> str:
    if isinstance(raw, str):
        return raw
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"messages is not UTF-8 (byte {error.start})") from None


def _loaded(text: str) -> Any:
    # The JSON reader recurses: look at the depth first.
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        bracket = found.group()
        if bracket in ("[", "{"):
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise InvalidArgument(f"messages is nested deeper than {MAX_JSON_DEPTH} levels")
        elif bracket in ("]", "}"):
            depth -= 1
    try:
        # Whole numbers have no use here; as floats they cost linear time however many digits they have.
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=float)
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"messages is not valid JSON: {error.msg} (line {error.lineno} column {error.colno})"
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InvalidArgument(f"messages has the key {_shown(key)} twice in one object")
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidArgument(f"messages contains {name}, which is not JSON")


def _message(entry: Any, where: str) -> Message:
    if not isinstance(entry, dict):
        raise InvalidArgument(f"{where} must be an object with role and content, not {_kind(entry)}")
    fields = {key: value for key, value in entry.items() if value is not None}
    role = fields.pop("role", None)
    if role is None:
        raise InvalidArgument(f"{where} has no role")
    if role not in ROLES:
        raise InvalidArgument(f"{where}.role is {_shown(role)}; allowed are {', '.join(ROLES)}")
    if "content" not in fields:
        raise InvalidArgument(f"{where} has no content")
    content = _content(fields.pop("content"), f"{where}.content")
    names = {field: _name(fields.pop(field), f"{where}.{field}") for field in _NAME_FIELDS if field in fields}
    if fields:
        raise InvalidArgument(f"{where} has the field {_shown(next(iter(fields)))}, which is not supported")
    return Message(role=role, content=content, **names)


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidArgument(f"{where} must be 1 to 64 characters of A-Z a-z 0-9 _ . : -")
    return value


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return _text(value, where)
    if not isinstance(value, list):
        raise InvalidArgument(f"{where} must be text or a list of text parts, not {_kind(value)}")
    if not value:
        raise InvalidArgument(f"{where} is an empty list")
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(value))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise InvalidArgument(f"{where} must be an object with type and text, not {_kind(part)}")
    if part.get("type") != "text":
        raise InvalidArgument(f"{where} has the type {_shown(part.get('type'))}; only text parts are served")
    if not isinstance(part.get("text"), str):
        raise InvalidArgument(f"{where}.text must be text, not {_kind(part.get('text'))}")
    unknown = next(
        (key for key, field in part.items() if key not in ("type", "text") and field is not None), None
    )
    if unknown is not None:
        raise InvalidArgument(f"{where} has the field {_shown(unknown)}, which is not supported")
    return _text(part["text"], f"{where}.text")


def _text(value: str, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{where} has half of a surrogate pair at character {error.start}") from None
    return value


def _kind(value: Any) -> str:
    """The JSON name of a value's type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", float: "a number"}
    return names.get(type(value), "null")


def _shown(value: Any) -> str:
    """A value as an error message may carry it: short, and without surprises in a terminal."""
    if not isinstance(value, str):
        return _kind(value)
    return ascii(value if len(value) <= 40 else value[:40] + "...")
