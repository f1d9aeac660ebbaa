"""A model's chat template, rendered in a sandbox the way Hugging Face's `apply_chat_template` does it.

Source of the environment's settings: `transformers/utils/chat_template_utils.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from naiad.contract.errors import InvalidArgument
from naiad.tokenization.messages import Message

__all__ = ["ChatTemplate"]

_MAX_REFUSAL_CHARACTERS = 500

# What an expression in a template can raise when messages are not what it expects.
_TEMPLATE_FAILURES = (
    jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError,
)  # fmt: skip


class _RefusedByTemplateError(jinja2.TemplateError):
    """The template called raise_exception."""


class _Generation(Extension):
    """``{% generation %}...{% endgeneration %}`` marks the model's turns for training; here: rendered."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as a plain set)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class ChatTemplate:
    """Turns messages into the one text the model was trained on. Threads may share it."""

    __slots__ = ("_special_tokens", "_template")

    def __init__(
        self,
        source: str,
        bos_token: str | None,
        eos_token: str | None,
        *,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile `source`; a token that is None stays undefined in the template, as with Hugging Face.

        Raises:
            InvalidArgument: the template's syntax is wrong.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            extensions=[loopcontrols, _Generation],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InvalidArgument(
                f"the chat template does not compile, line {error.lineno}: {error.message}"
            ) from error
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._special_tokens = {name: token for name, token in tokens.items() if token is not None}

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Return the prompt text.

        Raises:
            InvalidArgument: there is no message, or the template refuses these, in its own words.
        """
        if not messages:
            raise InvalidArgument("messages is empty; at least one message is needed")
        variables: Mapping[str, Any] = {
            "messages": [_as_template_sees(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._special_tokens,
        }
        try:
            return self._template.render(variables)
        except _RefusedByTemplateError as error:
            reason = (error.message or "no reason given")[:_MAX_REFUSAL_CHARACTERS]
            raise InvalidArgument(f"messages: the model's chat template refuses them: {reason}") from error
        except _TEMPLATE_FAILURES as error:
            # The text of other errors is Python's or jinja2's and could say more than a caller should read.
            raise InvalidArgument(
                f"messages: the model's chat template cannot render them ({type(error).__name__})"
            ) from error


def _as_template_sees(message: Message) -> dict[str, str]:
    fields = {"role": message.role, "content": message.content}
    if message.name is not None:
        fields["name"] = message.name
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def _refuse(message: object) -> NoReturn:
    raise _RefusedByTemplateError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
