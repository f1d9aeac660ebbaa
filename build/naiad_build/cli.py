"""`naiad build ...`: plan, prepare and look at models."""

from __future__ import annotations

import typer

from naiad_build.commands.engine import engine
from naiad_build.commands.models import prepare, quantize, show
from naiad_build.commands.plan import plan
from naiad_build.commands.render import render

__all__ = ["app"]

app = typer.Typer(
    name="build",
    help="Plan and prepare models: what fits a machine; fetch, convert, try out and publish weights.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
for command in (plan, prepare, quantize, engine, show, render):
    app.command()(command)
