"""`naiad bench ...`: measure a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from naiad_perf import perf_analyzer
from naiad_perf.batching import bare_engine, measure, served_engine, summary, table
from naiad_perf.compare_command import compare_command
from naiad_perf.errors import PerfError
from naiad_perf.overhead_command import overhead
from naiad_perf.peers_command import peers
from naiad_perf.report_command import report_command
from naiad_perf.sweep_command import scenarios, sweep
from naiad_perf.tools_command import aiperf, locust

__all__ = ["app"]

app = typer.Typer(
    name="bench",
    help="Measure servers: sweeps over scenarios, and the load generators they use.",
    epilog="A first sweep, of a minute:  naiad bench sweep quick",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_errors = Console(stderr=True)

_READ, _ALONE = "Read what was measured", "Load generators alone"

app.command()(sweep)
app.command()(scenarios)
app.command()(peers)
app.command()(overhead)
app.command("report", rich_help_panel=_READ)(report_command)
app.command("compare", rich_help_panel=_READ)(compare_command)
app.command(rich_help_panel=_ALONE)(aiperf)
app.command(rich_help_panel=_ALONE)(locust)


@app.command("perf-analyzer", rich_help_panel=_ALONE)
def run_perf_analyzer(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="perf_analyzer's own arguments, after `--`.", metavar="-- ARGUMENTS"),
    ] = None,
    artifacts: Annotated[Path, typer.Option(help="Where the program is kept once fetched.")] = Path(
        ".artifacts"
    ),
) -> None:
    """Run NVIDIA's perf_analyzer; the first time it is fetched, with newer C libraries where it needs them.

    For example:

    - `naiad bench perf-analyzer -- --help`

    - `naiad bench perf-analyzer -- -m ensemble -i grpc -u localhost:8001 --streaming --input-data in.json`
    """
    try:
        status = perf_analyzer.run(arguments or [], artifacts, _tell)
    except PerfError as error:
        _errors.print("error:", style="bold red", end=" ")
        _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    raise typer.Exit(status)


@app.command()
def batching(
    streams: Annotated[int, typer.Option(min=2, help="Streams at once.")] = 32,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Counted rounds.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show in-flight batching: many streams against one, and served against the bare engine.

    Starts a server and the same engine without Triton, and lets them take turns on the same prompts.
    """
    try:
        with bare_engine() as bare, served_engine() as served:
            result = measure(served, bare, streams=streams, tokens=tokens, repeats=repeats, report=_tell)
    except PerfError as error:
        _errors.print("error:", style="bold red", end=" ")
        _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    figures = summary(result, streams)
    if as_json:
        typer.echo(json.dumps(figures))
        return
    typer.echo(table(figures, repeats))


def _tell(line: str) -> None:
    _errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()
