"""`naiad bench ...`: measure a server."""

from __future__ import annotations

import typer

from naiad_perf.commands.compare import compare_command
from naiad_perf.commands.overhead import overhead
from naiad_perf.commands.peers import peers
from naiad_perf.commands.report import report_command
from naiad_perf.commands.sweep import scenarios, sweep
from naiad_perf.commands.tools import aiperf, locust, run_perf_analyzer

__all__ = ["app"]

app = typer.Typer(
    name="bench",
    help="Measure servers: sweeps over scenarios, and the load generators they use.",
    epilog="A first sweep, of a minute:  naiad bench sweep quick",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_READ, _ALONE = "Read what was measured", "Load generators alone"

app.command()(sweep)
app.command()(scenarios)
app.command()(peers)
app.command()(overhead)
app.command("report", rich_help_panel=_READ)(report_command)
app.command("compare", rich_help_panel=_READ)(compare_command)
app.command("perf-analyzer", rich_help_panel=_ALONE)(run_perf_analyzer)
app.command(rich_help_panel=_ALONE)(aiperf)
app.command(rich_help_panel=_ALONE)(locust)


if __name__ == "__main__":
    app()
