"""`naiad bench sweep` and `naiad bench scenarios`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from naiad.contract.errors import InvalidArgument
from naiad.settings.profiles import hourly_price_usd
from naiad_perf.commands.terminal import (
    FAILED,
    ArtifactsOption,
    complain,
    errors,
    output,
    stoppable,
    troubles_end_it,
)
from naiad_perf.drivers.registry import DRIVERS, make_driver
from naiad_perf.environment import describe_environment
from naiad_perf.error_budget import overruns
from naiad_perf.errors import PerfError, ScenarioError
from naiad_perf.metrics import Promise, Slos
from naiad_perf.results import read_results, summarise
from naiad_perf.servers.pool import Servers
from naiad_perf.sweep.display import SweepDisplay, results_table
from naiad_perf.sweep.folder import SweepFolder
from naiad_perf.sweep.plan import plan_runs, points_of
from naiad_perf.sweep.plan_table import print_plan
from naiad_perf.sweep.runner import FailedRun, Sweep
from naiad_perf.workload.making import make_workload
from naiad_perf.workload.scenario import (
    SCENARIOS_FOLDER,
    Scenario,
    find_scenario,
    read_scenario,
    supplied_scenarios,
)
from naiad_perf.workload.traces import TraceRow, read_trace

__all__ = ["scenarios", "sweep"]

_OVER_BUDGET = 3


def scenarios() -> None:
    """List the scenarios that come with Naiad; a scenario of your own is a YAML file like theirs."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("scenario", "points x subjects x repeats", "what"):
        table.add_column(heading, no_wrap=True)
    for path in supplied_scenarios():
        found = read_scenario(path, need_trace=False)
        size = f"{len(points_of(found))} x {len(found.subjects)} x {found.repeats}"
        table.add_row(path.stem, size, found.summary)
    output.print(table)
    output.print(f"They are in {SCENARIOS_FOLDER}", style="dim", highlight=False, soft_wrap=True)


def sweep(
    scenario: Annotated[
        str,
        typer.Argument(
            help="YAML file, or the name of a supplied scenario (`naiad bench scenarios` lists them).",
            metavar="SCENARIO",
        ),
    ],
    trace: Annotated[Path | None, typer.Option(help="Trace to replay, plain or gzipped.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.  [default: ARTIFACTS/bench/NAME]")
    ] = None,
    driver: Annotated[
        str | None, typer.Option(help=f"Load generator instead of the scenario's: {', '.join(DRIVERS)}.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Repeats instead of the scenario's.")] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Throw finished runs away and start over.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, and start nothing.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write a report into the folder's report/.")
    ] = True,
    artifacts: ArtifactsOption = Path(".artifacts"),
) -> None:
    """Measure a scenario: its models and profiles under all its loads, in interleaved repeats.

    Servers for the profiles are started and stopped by it. Each run is kept as one Parquet file the moment it
    is finished. Ctrl-C keeps what is finished; the same command again goes on from there. A server that dies
    in the middle of a run is waited for, and that run is made anew. The end is a table and a report.

    A minute, to see that it works:  naiad bench sweep quick

    What it would do:  naiad bench sweep cpu_concurrency --dry-run

    Five repeats instead:  naiad bench sweep cpu_rate --repeats 5

    A real service's arrivals:  naiad bench sweep mooncake_replay --trace conversation_trace.jsonl.gz

    Your own:  naiad bench sweep mine.yaml --out results/mine

    Exit status: 0 all measured; 1 something could not be measured; 2 the scenario or an option is wrong;
    3 more requests failed than the error budget allows; 130 interrupted.
    """
    with troubles_end_it():
        path = find_scenario(scenario)
        wanted = _changed(read_scenario(path, trace), driver, repeats)
        folder = SweepFolder(out if out is not None else artifacts / "bench" / wanted.name)
        rows = _rows(wanted)
        for point in points_of(wanted):  # too few rows of a trace are known before anything starts
            make_workload(wanted, point, rows, "check")
        if dry_run:
            print_plan(output, wanted, rows, folder)
            return
        with stoppable(lambda: _kept(folder)), folder.held():
            folder.begin(wanted, path.read_text(encoding="utf-8"), anew=anew)
            failed = _measure(wanted, rows, folder, artifacts)
            status = _conclude(wanted, folder, failed, report=report)
    raise typer.Exit(status)


def _kept(folder: SweepFolder) -> str:
    again = shlex.join(word for word in ("naiad", *sys.argv[1:]) if word != "--anew")
    finished = len(folder.finished())
    return f"finished runs are kept in {folder.path}: {finished}\nto go on from there: {again}"


def _changed(scenario: Scenario, driver: str | None, repeats: int | None) -> Scenario:
    """Return the scenario with the options given, its drivers known to exist."""
    changes: dict[str, object] = {}
    if driver is not None:
        subjects = tuple(subject.model_copy(update={"driver": None}) for subject in scenario.subjects)
        changes |= {"driver": driver, "subjects": subjects}
    if repeats is not None:
        changes["repeats"] = repeats
    changed = scenario.model_copy(update=changes)
    for name in {changed.driver, *(subject.driver for subject in changed.subjects if subject.driver)}:
        make_driver(name)
    return changed


def _rows(scenario: Scenario) -> list[TraceRow]:
    trace = scenario.trace
    if trace is None or trace.file is None:
        return []
    return read_trace(trace.file, trace.format, trace.offset, trace.limit)


def _measure(
    scenario: Scenario, rows: list[TraceRow], folder: SweepFolder, artifacts: Path
) -> tuple[FailedRun, ...]:
    """Make all runs that are missing."""
    if all(run.name in folder.finished() for run in plan_runs(scenario)):
        return ()
    slos = Slos(**scenario.slos.model_dump())
    environment = _environment(scenario)
    with (
        SweepDisplay(errors, slos) as display,
        Servers(scenario.subjects, artifacts, folder.path) as servers,
    ):
        made = Sweep(
            scenario,
            rows,
            folder,
            servers,
            lambda name: make_driver(name, artifacts),
            display,
            environment=environment,
            prices=_prices(scenario),
        )
        _warn_of_changes(folder, environment, display)
        display.waiting("starting servers")
        for subject in scenario.subjects:  # a model that is not there is known before the first run
            servers.of(subject).wait_healthy(subject.model, display.waiting)
        failed = made.run()
        display.waiting("stopping the servers")
        return failed


def _warn_of_changes(folder: SweepFolder, environment: Mapping[str, str], display: SweepDisplay) -> None:
    """Say what is no longer as it was for the runs that are finished: they would be mixed with others."""
    newest = folder.newest()
    if newest is None:
        return
    before = newest.facts.environment
    for name, now in environment.items():
        if before.get(name, now) != now:
            display.tell(
                f"careful: finished runs were made with {name} {before[name]}, now it is {now}; "
                "--anew makes all of them again"
            )


def _environment(scenario: Scenario) -> Mapping[str, str]:
    found = describe_environment()
    trace = scenario.trace
    if trace is not None and trace.file is not None:
        found["trace"] = (
            f"{trace.file.name} ({trace.format.source}), lengths divided by {trace.divide_lengths_by:g}"
            + (", arrivals stretched as named by the point" if scenario.load.replay else "")
        )
    return found


def _prices(scenario: Scenario) -> dict[str, float | None]:
    try:
        return {
            subject.name: subject.hourly_price_usd
            or (hourly_price_usd(subject.profile) if subject.profile else None)
            for subject in scenario.subjects
        }
    except InvalidArgument as error:
        raise ScenarioError(error.message) from error


def _conclude(scenario: Scenario, folder: SweepFolder, failed: tuple[FailedRun, ...], *, report: bool) -> int:
    """Print the table, write the report, and return the exit status."""
    promise = Promise(Slos(**scenario.slos.model_dump()), scenario.error_budget)
    results = read_results(folder.path, promise.slos)
    output.print(results_table(summarise(results)))
    output.print("medians of the repeats, ± half the way from lowest to highest", style="dim")
    if report:
        _write_report(scenario, folder, promise)
    for run in failed:
        complain(f"not measured: {run.name}: {run.reason}")
    over = overruns(results, promise.error_budget)
    for each in over:
        complain(each)
    if failed:
        return FAILED
    return _OVER_BUDGET if over else 0


def _write_report(scenario: Scenario, folder: SweepFolder, promise: Promise) -> None:
    from naiad_perf.report import write_report  # loads the drawing library: only now, not for every command

    with errors.status("writing the report") as status:

        def show(step: str, done: int, total: int) -> None:
            status.update(f"writing the report: {step}, {done} of {total}")

        try:
            target = folder.path / "report"
            written = write_report(folder.path, target, promise, title=scenario.name, report=show)
        except OSError as error:
            raise PerfError(f"the report cannot be written: {error}") from error
    output.print(f"report: {written.page}", highlight=False, soft_wrap=True)
