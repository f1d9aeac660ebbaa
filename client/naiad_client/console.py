"""What the commands write: the answer as it comes, the one line of figures, the one line of an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from naiad_client.client import Stream
from naiad_client.errors import (
    Cancelled,
    ConnectFailed,
    DeadlineExceeded,
    Draining,
    EngineStalled,
    EngineUnavailable,
    IncompleteStream,
    InternalError,
    InvalidArgument,
    ModelNotFound,
    NaiadError,
    Overloaded,
    PromptTooLong,
    Unsupported,
)
from naiad_client.inspection import Health, ModelState
from naiad_client.response import Completion

__all__ = [
    "completion_json",
    "figures",
    "health_json",
    "models_table",
    "reporting",
    "show_health",
    "show_problem",
    "write_answer",
]

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

_WHAT_TO_DO: tuple[tuple[type[NaiadError], str], ...] = (
    (ConnectFailed, "start the server, or name its gRPC port with --url or NAIAD_URL"),
    (ModelNotFound, "see `models` for what the server has, and choose with --model"),
    (PromptTooLong, "shorten the prompt, lower --max-tokens, or /reset the chat"),
    (InvalidArgument, "correct the request"),
    (Unsupported, "leave that setting out, or use a model that supports it"),
    (Overloaded, "try again in a moment"),
    (Draining, "try again when the server is back"),
    (EngineStalled, "check the server with `health`; it may be overloaded"),
    (EngineUnavailable, "check the server with `health`, then try again"),
    (DeadlineExceeded, "allow more time with --timeout, or ask for fewer tokens"),
    (IncompleteStream, "try again; the connection or a proxy cut the answer"),
    (Cancelled, "somebody stopped the request on the server; try again"),
    (InternalError, "look for the incident in the server's log"),
)


def show_problem(error: NaiadError) -> None:
    """Write one line to stderr: what happened and what to do about it."""
    advice = next(
        (text for kind, text in _WHAT_TO_DO if isinstance(error, kind)), "look into the server's log"
    )
    cut = " (the answer is incomplete)" if error.partial else ""
    typer.echo(f"error: {_line(error)}{cut} -> {advice}", err=True)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn every `NaiadError` into one line and exit status 1, Ctrl-C into status 130."""
    try:
        yield
    except NaiadError as error:
        show_problem(error)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("cancelled", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def write_answer(stream: Stream) -> Completion:
    """Write the answer to stdout piece by piece and end it with a newline, however it ends."""
    _never_fail_on_characters()
    last = "\n"
    try:
        for chunk in stream:
            if chunk.text:
                last = chunk.text  # before it is shown, for Ctrl-C may come in between
                typer.echo(chunk.text, nl=False)
    finally:
        if not last.endswith("\n"):
            typer.echo()
    return stream.completion


def figures(completion: Completion) -> str:
    """Return the line of figures of one answer."""
    usage, times = completion.usage, completion.timings
    parts = [
        f"prompt {_or_unknown(usage.num_input_tokens, 'd')} tokens",
        f"output {_or_unknown(usage.num_output_tokens, 'd')} tokens",
        f"TTFT {_or_unknown(_ms(times.ttft_s), '.0f')} ms",
        f"ITL {_or_unknown(_ms(times.mean_itl_s), '.1f')} ms",
        f"{_or_unknown(times.tokens_per_s, '.1f')} tokens/s",
    ]
    return " | ".join(parts)


def completion_json(completion: Completion, *, model: str) -> dict[str, Any]:
    """Return the object that ``ask --json`` prints."""
    times = completion.timings
    return {
        "model": model,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "usage": asdict(completion.usage),
        "ttft_ms": _ms(times.ttft_s),
        "mean_itl_ms": _ms(times.mean_itl_s),
        "total_ms": _ms(times.total_s),
        "tokens_per_s": times.tokens_per_s,
    }


def health_json(health: Health) -> dict[str, Any]:
    """Return the object that ``health --json`` prints."""
    return {
        "healthy": health.healthy,
        "live": health.live,
        "ready": health.ready,
        "canary_ms": _ms(health.canary_s),
        "problem": None if health.problem is None else _line(health.problem),
    }


def show_health(health: Health) -> None:
    """Write each step of the check to stdout, and the problem, if any, to stderr."""
    canary = "failed" if health.canary_s is None else f"one token in {health.canary_s * 1000:.0f} ms"
    typer.echo(f"live    {'yes' if health.live else 'no'}")
    typer.echo(f"ready   {'yes' if health.ready else 'no'}")
    typer.echo(f"canary  {canary}")
    if health.problem is not None:
        show_problem(health.problem)


def models_table(models: tuple[ModelState, ...]) -> None:
    """Write the table of models to stdout."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("model", "version", "ready", "state"):
        table.add_column(heading, no_wrap=heading != "state")
    for model in models:
        state = f"{model.state or 'NOT LOADED'}{': ' + model.reason if model.reason else ''}"
        table.add_row(model.name, model.version or "-", "yes" if model.ready else "no", state)
    Console(soft_wrap=True, highlight=False, markup=False).print(table)


def _never_fail_on_characters() -> None:
    """A terminal that cannot show a character shows a substitute; the answer goes on."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _or_unknown(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def _line(error: NaiadError) -> str:
    return f"{' '.join(error.message.split())} [{error.code}]"
