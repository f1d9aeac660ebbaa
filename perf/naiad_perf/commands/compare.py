"""`naiad bench compare`: one subject against another, with exit statuses for CI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from naiad_perf.commands.promise_options import (
    ErrorBudgetOption,
    LatencyOption,
    TpotOption,
    TtftOption,
    promise_of,
)
from naiad_perf.commands.terminal import output, troubles_end_it
from naiad_perf.comparison.compare import Comparison, compare
from naiad_perf.comparison.gates import Gate, GateResult, figure_named, parse_gate, pass_through
from naiad_perf.comparison.text import as_json, print_comparison, print_gates
from naiad_perf.display import KEY_FIGURES
from naiad_perf.error_budget import Overrun, overruns
from naiad_perf.errors import ScenarioError
from naiad_perf.metrics import FIGURES, Promise, Slos
from naiad_perf.results import RunResult, read_results

__all__ = ["compare_command"]

_WORSE, _USAGE, _OVER_BUDGET = 1, 2, 3


@dataclass(frozen=True, slots=True)
class _Side:
    """A or B: all runs of a subject of a sweep."""

    folder: Path
    subject: str
    results: tuple[RunResult, ...]
    promise: Promise


def compare_command(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR[:SUBJECT]",
            help="First A, then B: folders of sweeps; or one folder, and behind it two of its subjects.",
        ),
    ],
    figure: Annotated[
        list[str] | None,
        typer.Option(help="Figure to show, for example ttft_ms_p99; again for more; `all` for all."),
    ] = None,
    by_point: Annotated[bool, typer.Option("--by-point", help="Show every point, not only overall.")] = False,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE:TOLERANCE",
            help="Exit with 1 if B is shown to be worse, and by more than this; again for more.",
        ),
    ] = None,
    every_point: Annotated[
        bool, typer.Option("--every-point", help="Gates hold at every point, not only overall.")
    ] = False,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the intervals.")] = 0.95,
    ttft_ms: TtftOption = None,
    tpot_ms: TpotOption = None,
    latency_ms: LatencyOption = None,
    error_budget: ErrorBudgetOption = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Compare B with A: ratios with confidence intervals, and a verdict only where an interval allows one.

    Subjects of one sweep are compared repeat by repeat, so that what the machine did meanwhile met both;
    3 repeats are needed, 5 and more tell more. For example:

    - `naiad bench compare .artifacts/bench/quick ensemble bls`

    - `naiad bench compare before:bls after:bls --by-point`

    - `naiad bench compare sweep old new --gate tokens_per_s:0.05 --gate ttft_ms_p99:0.1`

    Exit status: 0 all is well; 1 a gate does not hold; 2 wrong usage, or a gate that cannot be judged;
    3 more requests failed than the error budget allows.
    """
    stated = Slos(ttft_ms, tpot_ms, latency_ms)
    with troubles_end_it(otherwise=_USAGE):
        gates = [parse_gate(text) for text in gate or ()]
        shown = _shown(figure, gates)
        a, b = _sides(sides, stated)
        comparison = _compare(a, b, confidence)
        over = _over_budget((a, b), error_budget)
    results = list(pass_through(gates, comparison, every_point=every_point))
    if json_output:
        typer.echo(json.dumps(as_json(comparison, results, over), allow_nan=False))
    else:
        print_comparison(output, comparison, shown, by_point=by_point)
        print_gates(output, results, over)
    raise typer.Exit(_status(results, over))


def _shown(figures: Sequence[str] | None, gates: Sequence[Gate]) -> list[str]:
    """Return names of the figures to show: those asked for, and those of the gates."""
    asked = list(figures or KEY_FIGURES)
    if "all" in asked:
        return list(FIGURES)
    gated = [gate.figure.name for gate in gates]
    return list(dict.fromkeys([*(figure_named(name).name for name in asked), *gated]))


def _sides(arguments: Sequence[str], stated: Slos) -> tuple[_Side, _Side]:
    if len(arguments) == 3:
        arguments = [f"{arguments[0]}:{arguments[1]}", f"{arguments[0]}:{arguments[2]}"]
    if len(arguments) == 1:
        folder = Path(arguments[0])
        subjects = _subjects(read_results(folder, stated))
        if len(subjects) != 2:
            known = ", ".join(subjects)
            raise ScenarioError(f"{folder} has the subjects {known}: name two of them behind it")
        arguments = [f"{folder}:{subject}" for subject in subjects]
    if len(arguments) != 2:
        raise ScenarioError("name two folders, DIR or DIR:SUBJECT, or one folder and two of its subjects")
    slos = promise_of(_split(arguments[0])[0], stated, None).slos
    a, b = (_side(argument, slos) for argument in arguments)
    if (a.folder.resolve(), a.subject) == (b.folder.resolve(), b.subject):
        raise ScenarioError(f"A and B are both {a.subject} of {a.folder}: name two subjects or two folders")
    return a, b


def _split(argument: str) -> tuple[Path, str]:
    """Return folder and subject; no subject where the whole names a folder."""
    before, colon, after = argument.rpartition(":")
    return (Path(before), after) if colon and not Path(argument).is_dir() else (Path(argument), "")


def _side(argument: str, slos: Slos) -> _Side:
    folder, subject = _split(argument)
    results = read_results(folder, slos)
    subjects = _subjects(results)
    known = ", ".join(subjects)
    if not subject and len(subjects) > 1:
        raise ScenarioError(f"{folder} has several subjects: write {folder}:SUBJECT with one of {known}")
    subject = subject or subjects[0]
    if subject not in subjects:
        raise ScenarioError(f"{folder} has no subject {subject!r}, only {known}")
    own = promise_of(folder, Slos(), None)
    return _Side(folder, subject, tuple(each for each in results if each.facts.subject == subject), own)


def _subjects(results: Sequence[RunResult]) -> list[str]:
    return list(dict.fromkeys(result.facts.subject for result in results))


def _compare(a: _Side, b: _Side, confidence: float) -> Comparison:
    same_sweep = a.folder.resolve() == b.folder.resolve()
    names = _names(a, b)
    found = compare(a.results, b.results, names=names, same_sweep=same_sweep, confidence=confidence)
    if a.promise.slos == b.promise.slos:
        return found
    return replace(
        found, warnings=(*found.warnings, "their scenarios state different SLOs: goodput is by A's")
    )


def _names(a: _Side, b: _Side) -> tuple[str, str]:
    """Return subjects, with their folders where the same subject is meant of two."""
    if a.subject != b.subject:
        return a.subject, b.subject
    return f"{a.folder}:{a.subject}", f"{b.folder}:{b.subject}"


def _over_budget(sides: Sequence[_Side], stated: float | None) -> tuple[Overrun, ...]:
    """Judge each side by the budget of its own sweep, unless one is stated."""
    return tuple(
        over
        for side in sides
        for over in overruns(side.results, side.promise.error_budget if stated is None else stated)
    )


def _status(results: Sequence[GateResult], over: Sequence[Overrun]) -> int:
    """Return the exit status: failures make figures untrustworthy, so they come first."""
    if over:
        return _OVER_BUDGET
    if any(result.held is False for result in results):
        return _WORSE
    return _USAGE if any(result.held is None for result in results) else 0
