"""Puts the commands of all packages under one name."""

from __future__ import annotations

import typer

from naiad.cli.demo import demo
from naiad.cli.setup import setup
from naiad.server.cli import SERVE_CONTEXT, serve
from naiad_build.cli import app as build
from naiad_client.cli import app as client
from naiad_perf.cli import app as bench

__all__ = ["main"]

_EPILOG = (
    "A first session:\n\n"
    "- `naiad demo` sets up, starts a server, asks a question and stops\n"
    "- `naiad serve` keeps a server running; in a second terminal:\n"
    "- `naiad ask 'Why is the sky blue?'`, `naiad chat`, `naiad health`"
)

app = typer.Typer(
    name="naiad",
    help="Serve large language models through Triton with NVIDIA's TensorRT-LLM tensor contract.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command()(setup)
app.command()(demo)
app.command(context_settings=SERVE_CONTEXT)(serve)
app.add_typer(client)
app.add_typer(build, name="build")
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line."""
    app()
