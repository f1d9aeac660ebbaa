"""The order of running."""

from __future__ import annotations

import pytest

from naiad_perf.errors import ScenarioError
from naiad_perf.sweep.plan import PlannedRun, Point, plan_runs, points_of
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.strict_yaml import validated


def scenario(**changes: object) -> Scenario:
    content = {
        "name": "lab",
        "subjects": [{"name": "a", "profile": "cpu"}, {"name": "b", "profile": "cpu"}],
        "load": {"concurrency": [1, 8]},
        "lengths": [{"input": 4, "output": 2}, {"name": "long", "input": 90, "output": 2}],
        "requests": 5,
        "repeats": 2,
        **changes,
    }
    return validated(Scenario, {key: value for key, value in content.items() if value is not None}, "test")


def order(runs: tuple[PlannedRun, ...]) -> list[str]:
    return [f"{run.point.name} {run.subject.name} {run.repeat}" for run in runs]


def test_every_load_meets_all_lengths():
    assert points_of(scenario()) == (
        Point("c1-i4-o2", concurrency=1, lengths=0),
        Point("c1-long", concurrency=1, lengths=1),
        Point("c8-i4-o2", concurrency=8, lengths=0),
        Point("c8-long", concurrency=8, lengths=1),
    )
    rates = points_of(scenario(load={"request_rate": [0.5, 2.0]}))
    assert [(point.name, point.request_rate) for point in rates] == [
        ("r0.5-i4-o2", 0.5),
        ("r0.5-long", 0.5),
        ("r2-i4-o2", 2.0),
        ("r2-long", 2.0),
    ]


def test_a_trace_gives_the_lengths_and_a_replay_its_stretches():
    trace = {"format": "mooncake", "divide_lengths_by": 32, "stretch_arrivals_by": [4, 8.5]}
    replay = points_of(scenario(load={"replay": True}, lengths=None, trace=trace))
    assert [(point.name, point.stretch) for point in replay] == [
        ("x4-mooncake-d32", 4.0),
        ("x8.5-mooncake-d32", 8.5),
    ]
    one = {"format": "azure"}
    closed = points_of(scenario(load={"concurrency": 3}, lengths=None, trace=one))
    assert closed == (Point("c3-azure-d1", concurrency=3),)


def test_subjects_take_turns_at_each_point_and_every_other_repeat_runs_backwards():
    runs = plan_runs(scenario(lengths={"input": 4, "output": 2}))
    assert order(runs) == [
        "c1-i4-o2 a 0",
        "c1-i4-o2 b 0",
        "c8-i4-o2 a 0",
        "c8-i4-o2 b 0",
        "c8-i4-o2 b 1",
        "c8-i4-o2 a 1",
        "c1-i4-o2 b 1",
        "c1-i4-o2 a 1",
    ]
    assert [run.position for run in runs] == list(range(8))


def test_more_repeats_leave_the_earlier_ones_where_they_were():
    assert order(plan_runs(scenario(repeats=5)))[:16] == order(plan_runs(scenario(repeats=2)))


def test_names_of_runs_are_unique_and_sort_by_point():
    runs = plan_runs(scenario(repeats=3))
    assert len({run.name for run in runs}) == len(runs) == 24
    assert runs[0].name == "c1-i4-o2__a__000"


def test_a_load_that_is_there_twice_is_refused_by_name():
    with pytest.raises(ScenarioError, match="c8-i4-o2, c8-long is there twice"):
        points_of(scenario(load={"concurrency": [8, 1, 8]}))
