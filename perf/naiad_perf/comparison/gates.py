"""Gates for CI: which figures may be how much worse."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from naiad_perf.comparison.compare import Compared, Comparison, Verdict
from naiad_perf.errors import ScenarioError
from naiad_perf.metrics import DISTRIBUTIONS, FIGURES, RUN_METRICS, STATISTICS, Better, Figure

__all__ = ["Gate", "GateResult", "figure_named", "parse_gate", "pass_through"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A figure of B may be worse than that of A by at most a tolerance.

    Attributes:
        figure: one of which lower or higher is better.
        tolerance: 0.05 lets tokens/s fall to 0.95 times, or a latency rise to 1.05 times.
    """

    figure: Figure
    tolerance: float

    def holds(self, compared: Compared) -> bool | None:
        """Return whether it holds; None where nothing can be said.

        It fails when B is shown to be worse, and its ratio is beyond the tolerance.
        """
        if compared.interval is None or compared.ratio is None:
            return None
        worst = 1 - self.tolerance if self.figure.better is Better.HIGHER else 1 + self.tolerance
        beyond = compared.ratio < worst if self.figure.better is Better.HIGHER else compared.ratio > worst
        return not (beyond and compared.verdict is Verdict.WORSE)


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate at a point: held, not held, or None where nothing can be said."""

    gate: Gate
    compared: Compared
    held: bool | None


def parse_gate(text: str) -> Gate:
    """Read ``FIGURE:TOLERANCE``, for example ``tokens_per_s:0.05``.

    Raises:
        ScenarioError: it is none; the message says what would be right.
    """
    name, colon, number = text.rpartition(":")
    try:
        tolerance = float(number)
    except ValueError:
        tolerance = -1.0
    if not colon or not 0 <= tolerance < 1:
        raise ScenarioError(
            f"{text!r} is no gate: write FIGURE:TOLERANCE, for example tokens_per_s:0.05 for 5 %"
        )
    figure = figure_named(name)
    if figure.better is Better.NEITHER:
        raise ScenarioError(f"{name} cannot be a gate: neither more nor less of it is better")
    return Gate(figure, tolerance)


def figure_named(name: str) -> Figure:
    """Return a figure.

    Raises:
        ScenarioError: there is none of this name; the message has near ones.
    """
    if name in FIGURES:
        return FIGURES[name]
    near = difflib.get_close_matches(name, FIGURES, n=3, cutoff=0.5)
    near += [known for known in FIGURES if known.startswith(f"{name}_") and known not in near]
    hint = f"did you mean {', '.join(near)}?" if near else f"known are {_known()}"
    raise ScenarioError(f"there is no figure {name!r}; {hint}")


def _known() -> str:
    single = ", ".join(metric.name for metric in RUN_METRICS)
    spread = ", ".join(metric.name for metric in DISTRIBUTIONS)
    return f"{single}; and, with _{', _'.join(STATISTICS)} behind it, {spread}"


def pass_through(gates: Sequence[Gate], comparison: Comparison, *, every_point: bool) -> Iterable[GateResult]:
    """Yield the result of each gate: overall, or at every point."""
    points: Sequence[str | None] = comparison.points if every_point else (None,)
    for gate in gates:
        for point in points:
            compared = comparison.at(gate.figure.name, point)
            yield GateResult(gate, compared, gate.holds(compared))
