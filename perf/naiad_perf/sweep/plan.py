"""The order of running: every repeat measures all points, and at each point the subjects take turns.

Every other repeat runs backwards, so that a machine that gets slower or faster during a sweep favours neither
a point nor a subject.
"""

from __future__ import annotations

from dataclasses import dataclass

from naiad_perf.errors import ScenarioError
from naiad_perf.workload.scenario import Scenario, Subject

__all__ = ["PlannedRun", "Point", "plan_runs", "points_of"]


@dataclass(frozen=True, slots=True)
class Point:
    """One load: exactly one of `concurrency`, `request_rate` and `stretch` is set.

    Attributes:
        name: for example "c32-i128-o64"; the same for all subjects.
        concurrency: streams at once of a closed loop.
        request_rate: mean requests a second of a Poisson process.
        stretch: of a replayed trace's gaps.
        lengths: index into the scenario's lengths; None with a trace.
    """

    name: str
    concurrency: int | None = None
    request_rate: float | None = None
    stretch: float | None = None
    lengths: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: a subject at a point for the n-th time (`repeat`, from 0), number `position` of the sweep."""

    subject: Subject
    point: Point
    repeat: int
    position: int

    @property
    def name(self) -> str:
        """Unique within a sweep; names its files. Neither part can hold two underscores in a row."""
        return f"{self.point.name}__{self.subject.name}__{self.repeat:03d}"


def points_of(scenario: Scenario) -> tuple[Point, ...]:
    """Return the points of a scenario: its loads, each with all of its lengths.

    Raises:
        ScenarioError: two points would have the same name.
    """
    load = scenario.load
    shapes = [Point(f"c{streams}", concurrency=streams) for streams in load.concurrency or ()]
    shapes += [Point(f"r{rate:g}", request_rate=rate) for rate in load.request_rate or ()]
    trace = scenario.trace
    if trace is None:
        named = [(index, lengths.label) for index, lengths in enumerate(scenario.lengths)]
        points = [_with_lengths(shape, index, label) for shape in shapes for index, label in named]
    else:
        if load.replay:
            shapes = [Point(f"x{stretch:g}", stretch=stretch) for stretch in trace.stretch_arrivals_by]
        label = f"{trace.format.value}-d{trace.divide_lengths_by:g}"
        points = [_with_lengths(shape, None, label) for shape in shapes]
    names = [point.name for point in points]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ScenarioError(f"the point {', '.join(twice)} is there twice: leave the doubled load out")
    return tuple(points)


def _with_lengths(shape: Point, lengths: int | None, label: str) -> Point:
    return Point(f"{shape.name}-{label}", shape.concurrency, shape.request_rate, shape.stretch, lengths)


def plan_runs(scenario: Scenario) -> tuple[PlannedRun, ...]:
    """Return all runs in order of running.

    Raises:
        ScenarioError: see `points_of`.
    """
    pairs = [(point, subject) for point in points_of(scenario) for subject in scenario.subjects]
    runs: list[PlannedRun] = []
    for repeat in range(scenario.repeats):
        for point, subject in pairs if repeat % 2 == 0 else reversed(pairs):
            runs.append(PlannedRun(subject, point, repeat, len(runs)))
    return tuple(runs)
