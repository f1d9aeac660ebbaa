"""Options of commands that judge answers: SLOs and the error budget, from the scenario unless stated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from naiad_perf.metrics import Promise, Slos, read_promise

__all__ = ["ErrorBudgetOption", "LatencyOption", "TpotOption", "TtftOption", "promise_of"]

_PANEL = "What is a good answer (the scenario's, unless stated here)"

TtftOption = Annotated[
    float | None,
    typer.Option("--ttft-ms", min=0.001, help="SLO: time to first token.", rich_help_panel=_PANEL),
]
TpotOption = Annotated[
    float | None,
    typer.Option("--tpot-ms", min=0.001, help="SLO: time per output token.", rich_help_panel=_PANEL),
]
LatencyOption = Annotated[
    float | None,
    typer.Option("--latency-ms", min=0.001, help="SLO: request latency.", rich_help_panel=_PANEL),
]
ErrorBudgetOption = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Share of a run's requests that may fail, 0.01 is 1 %.", rich_help_panel=_PANEL
    ),
]


def promise_of(folder: Path, stated: Slos, error_budget: float | None) -> Promise:
    """Return the promise of the scenario in a folder, with what is stated in its place.

    Raises:
        ScenarioError: the scenario's is wrong.
    """
    promise = read_promise(folder)
    budget = promise.error_budget if error_budget is None else error_budget
    return Promise(replace(promise.slos, **stated.stated), budget)
