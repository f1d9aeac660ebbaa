"""Commands that talk to a server: ask, chat, models, health. `app` is also mounted into ``naiad``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from naiad_client.client import DEFAULT_MODEL, DEFAULT_URL, Client
from naiad_client.console import (
    completion_json,
    figures,
    health_json,
    models_table,
    reporting,
    show_health,
    write_answer,
)
from naiad_client.conversation import converse
from naiad_client.limits import Retries, Timeouts
from naiad_client.request import GenerationRequest, Message

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
)

Url = Annotated[str, typer.Option("--url", envvar="NAIAD_URL", help="The server's gRPC endpoint, host:port.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Model to ask; `models` lists them.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Most tokens to generate.")]
Temperature = Annotated[float | None, typer.Option(min=0.0, help="0 is greedy.  [default: the server's]")]
TopK = Annotated[int | None, typer.Option(min=0, help="Choose among the k likeliest tokens; 0 is off.")]
TopP = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Choose among the likeliest of this mass.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="Makes sampling repeatable.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="Text that ends the answer; repeatable.")]
System = Annotated[str | None, typer.Option("--system", "-s", help="System message.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.001, help="Seconds for the whole answer.  [default: no limit]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@app.command(
    epilog="Examples:\n\n"
    "- `naiad ask 'Why is the sky blue?'`\n"
    "- `naiad ask 'List three rivers' --max-tokens 40 --temperature 0 --json`\n"
    "- `naiad ask --raw 'Once upon a time' --stop '.'`\n"
    "- `cat letter.txt | naiad ask - --system 'Summarise in one sentence.'`"
)
def ask(
    question: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
    system: System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send the text as it is, without the chat template.")
    ] = False,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Ask one question: the answer goes to stdout as it arrives, then one line of figures to stderr."""
    if raw and system is not None:
        raise typer.BadParameter("a raw prompt has no system message", param_hint="--system")
    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        raise typer.BadParameter("the question is empty")
    with reporting(), Client(url, model=model, timeouts=Timeouts(total_s=timeout)) as client:
        request = GenerationRequest(
            text_input=text if raw else None,
            messages=None if raw else [*_opening(system), {"role": "user", "content": text}],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_words=stop or (),
        )
        with client.stream(request) as stream:
            if as_json:
                typer.echo(json.dumps(completion_json(stream.result(), model=model)))
            else:
                typer.echo(figures(write_answer(stream)), err=True)


@app.command(
    epilog="Examples:\n\n- `naiad chat`\n- `naiad chat --system 'Talk like a pirate.' --temperature 0.7`\n\n"
    "In the chat: `/reset` forgets the conversation, `/exit` or Ctrl-D leaves, Ctrl-C stops an answer."
)
def chat(
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
    system: System = None,
    timeout: Timeout = None,
) -> None:
    """Talk with a model; it remembers the conversation until /reset."""
    with reporting(), Client(url, model=model, timeouts=Timeouts(total_s=timeout)) as client:
        opening = _opening(system)
        settings = GenerationRequest(
            messages=[*opening, {"role": "user", "content": ""}],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_words=stop or (),
        )
        converse(client, settings, opening)


@app.command(epilog="Example: `naiad models --json`")
def models(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List the server's models: version and whether each is ready."""
    with reporting(), Client(url) as client:
        found = client.models()
        if as_json:
            rows = [
                {"name": m.name, "version": m.version, "ready": m.ready, "state": m.state, "reason": m.reason}
                for m in found
            ]
            typer.echo(json.dumps({"models": rows}))
        else:
            models_table(found)


@app.command(epilog="Example: `naiad health && echo well`")
def health(
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds for the generation of one token.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Check that the server lives, is ready, and really generates a token; exit status 0 if so, else 1."""
    with reporting(), Client(url, model=model, retries=Retries(attempts=1)) as client:
        result = client.health(timeouts=Timeouts(total_s=timeout))
        if as_json:
            typer.echo(json.dumps(health_json(result)))
        else:
            show_health(result)
        if not result.healthy:
            raise typer.Exit(1)


def _opening(system: str | None) -> list[Message]:
    return [] if system is None else [{"role": "system", "content": system}]
