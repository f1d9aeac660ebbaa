"""The interactive loop of ``chat``: read a line, stream the answer, remember both."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import typer

from naiad_client.client import Client
from naiad_client.console import figures, show_problem, write_answer
from naiad_client.errors import NaiadError
from naiad_client.request import GenerationRequest, Message

__all__ = ["converse"]

_PROMPT = "> "


def converse(client: Client, settings: GenerationRequest, opening: Sequence[Message]) -> None:
    """Talk until /exit or the end of input.

    A failed turn is reported in one line and forgotten, so that it can be asked again. A turn stopped with
    Ctrl-C stays in the conversation with the part of the answer that was shown.

    Args:
        client: where to ask.
        settings: the request whose messages are replaced for each turn.
        opening: the messages that a new conversation starts with.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing, where the platform has it
    typer.echo("/reset forgets the conversation, /exit leaves, Ctrl-C stops an answer", err=True)
    history = list(opening)
    while (line := _next_line()) is not None:
        if line == "/reset":
            history = list(opening)
            typer.echo("forgotten", err=True)
        elif line.startswith("/"):
            typer.echo(f"unknown command {line.split()[0]}; there are /reset and /exit", err=True)
        elif line:
            asked = [*history, {"role": "user", "content": line}]
            answer = _answer(client, settings, asked)
            if answer:
                history = [*asked, {"role": "assistant", "content": answer}]


def _next_line() -> str | None:
    while True:
        try:
            line = input(_PROMPT).strip()
        except EOFError:
            typer.echo(err=True)
            return None
        except KeyboardInterrupt:
            typer.echo("\n/exit or Ctrl-D leaves", err=True)
            continue
        return None if line == "/exit" else line


def _answer(client: Client, settings: GenerationRequest, asked: Sequence[Message]) -> str:
    """Stream one answer and return what of it belongs into the conversation; empty when it failed."""
    stream = client.stream(dataclasses.replace(settings, messages=asked))
    try:
        with stream:
            typer.echo(figures(write_answer(stream)), err=True)
    except KeyboardInterrupt:  # leaving the context has cancelled the request
        typer.echo("cancelled", err=True)
    except NaiadError as error:
        show_problem(error)
        return ""
    return stream.text
