"""Sweeps with a scripted load generator and scripted servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import naiad_perf.sweep.runner
from naiad_perf.errors import LoadError, PerfError, UnsupportedLoad
from naiad_perf.records import RequestRecord, Run, RunFacts, ServerFigures
from naiad_perf.sweep.folder import SweepFolder
from naiad_perf.sweep.plan import plan_runs
from naiad_perf.sweep.runner import FailedRun, Sweep
from naiad_perf.workload.load import ClosedLoop, LoadTask, OpenLoop
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.strict_yaml import validated
from naiad_perf.workload.traces import TraceRow
from tests.harness.polling import poll
from tests.harness.scripted_sweep import (
    Behaviour,
    RecordingDisplay,
    ScriptedDriver,
    ScriptedServer,
    ScriptedTriton,
    answers,
    servers_of,
)


def scenario(**changes: object) -> Scenario:
    content = {
        "name": "lab",
        "driver": "scripted",
        "subjects": [{"name": "a", "profile": "lab"}, {"name": "b", "profile": "lab", "model": "ensemble"}],
        "load": {"concurrency": [1, 2]},
        "lengths": {"input": 6, "output": 4},
        "requests": 5,
        "warm_up": 1,
        "repeats": 2,
        **changes,
    }
    return validated(Scenario, {key: value for key, value in content.items() if value is not None}, "test")


class Bench:
    """A sweep on a folder, with everything it touches."""

    def __init__(self, folder: Path, wanted: Scenario, script: Sequence[Behaviour] = ()) -> None:
        self.scenario = wanted
        self.folder = SweepFolder(folder)
        folder.mkdir(exist_ok=True)
        self.server = ScriptedServer()
        self.driver = ScriptedDriver([self._counted(step) for step in script])
        self.display = RecordingDisplay()
        self.rows: list[TraceRow] = []
        self.asked: list[str] = []

    def _counted(self, step: Behaviour) -> Behaviour:
        """Let the server count what succeeded, as a real one does."""

        def run(task: LoadTask) -> Sequence[RequestRecord]:
            records = step(task)
            self.server.script.succeeded += sum(not record.error for record in records)
            return records

        return run

    def make(self, name: str) -> ScriptedDriver:
        self.asked.append(name)
        return self.driver

    def run(self) -> tuple[FailedRun, ...]:
        made = Sweep(
            self.scenario,
            self.rows,
            self.folder,
            servers_of(self.server),
            self.make,
            self.display,
            environment={"cpu": "scripted"},
            prices={"a": 3.6, "b": None},
        )
        return made.run()

    def facts(self) -> list[RunFacts]:
        return [run.facts for run in self.folder.runs()]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted servers fail at once, and nothing has to be waited for."""
    monkeypatch.setattr(naiad_perf.sweep.runner, "_FAULT_SHOWS_S", 0.0)
    monkeypatch.setattr("naiad_perf.servers.figures._SETTLE_S", 0.0)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def bench(script: Sequence[Behaviour] = (), **changes: Any) -> Bench:
        return Bench(tmp_path / "out", scenario(**changes), script or [answers] * 16)

    return bench


def test_all_runs_are_made_in_the_planned_order_and_kept(bench):
    lab = bench()
    assert lab.run() == ()
    names = [run.name for run in plan_runs(lab.scenario)]
    assert lab.folder.finished() == set(names)
    assert [event for event in lab.display.events if event.startswith("done")] == [f"done {n}" for n in names]
    assert [facts.position for facts in lab.facts()] == list(range(8))
    assert [task.model for task in lab.driver.tasks[:4]] == ["tensorrt_llm_bls", "ensemble"] * 2
    assert lab.server.health_checks == 8  # before each run


def test_a_run_says_what_was_run_where_and_how(bench):
    lab = bench(subjects=[{"name": "a", "profile": "lab"}], repeats=1, load={"concurrency": 2})
    lab.run()
    (run,) = lab.folder.runs()
    facts = run.facts
    assert (facts.subject, facts.point, facts.repeat, facts.position) == ("a", "c2-i6-o4", 0, 0)
    assert (facts.driver, facts.driver_version, facts.model, facts.profile) == (
        "scripted", "1.0", "tensorrt_llm_bls", "lab",
    )  # fmt: skip
    assert (facts.concurrency, facts.request_rate) == (2, None)
    assert (facts.input_tokens, facts.output_tokens) == (6.0, 4.0)
    assert (facts.command, facts.wall_s, facts.client_cpu_s) == (("scripted", "tensorrt_llm_bls"), 2.0, 0.5)
    assert facts.hourly_price_usd == 3.6
    assert facts.attempts == 1
    assert facts.environment == {"cpu": "scripted", "triton": "triton 2.51.0", "streaming": "yes"}
    assert facts.server == ServerFigures(requests=6, failed=0, queue_ns=0, cpu_s=60.0)
    assert [record.warm_up for record in run.requests] == [True] + [False] * 5


def test_every_subject_and_repeat_gets_the_same_load_in_other_words(bench):
    lab = bench(load={"request_rate": 2})
    lab.run()
    loads = {task.load for task in lab.driver.tasks}
    assert len(loads) == 1
    assert isinstance(loads.pop(), OpenLoop)
    assert len({task.prompts[0].text for task in lab.driver.tasks}) == 4
    assert {facts.request_rate for facts in lab.facts()} == {2.0}


def test_a_replay_states_its_mean_rate(bench):
    lab = bench(load={"replay": True}, lengths=None, trace={"format": "azure", "stretch_arrivals_by": 2})
    lab.rows = [TraceRow(index * 500_000_000, 6, 4) for index in range(6)]
    lab.run()
    assert {facts.request_rate for facts in lab.facts()} == {1.0}


def test_a_model_that_takes_ids_is_recognised(bench):
    lab = bench(repeats=1)
    lab.server.script = lab.server.triton = ScriptedTriton(takes_ids=True)
    lab.run()
    assert all(task.takes_ids for task in lab.driver.tasks)


def test_settings_of_the_scenario_reach_the_driver(bench):
    lab = bench(timeout_s=7, cancel_after_s=0.5, load={"concurrency": 2}, repeats=1)
    lab.run()
    task = lab.driver.tasks[0]
    assert (task.timeout_s, task.cancel_after_s, task.load, task.warm_up) == (7.0, 0.5, ClosedLoop(2), 1)
    assert (task.grpc_url, task.http_url) == (lab.server.grpc_url, lab.server.http_url)


def test_a_driver_is_made_and_prepared_once(bench):
    lab = bench(subjects=[{"name": "a", "profile": "x"}, {"name": "b", "profile": "x", "driver": "other"}])
    lab.run()
    assert lab.asked == ["scripted", "other"]
    assert lab.driver.prepared == 2


def test_finished_runs_are_not_made_again(bench):
    first = bench(repeats=1)
    first.run()
    again = bench()
    again.run()
    assert len(again.driver.tasks) == 4
    assert again.display.events[0] == "begin 8 runs, 4 finished"
    assert sorted(facts.repeat for facts in again.facts()) == [0] * 4 + [1] * 4


def test_an_interrupt_keeps_what_is_finished_and_the_next_sweep_goes_on(bench):
    def interrupted(task: LoadTask) -> Sequence[RequestRecord]:
        raise KeyboardInterrupt

    lab = bench([answers, answers, answers, interrupted])
    with pytest.raises(KeyboardInterrupt):
        lab.run()
    assert len(lab.folder.finished()) == 3
    again = bench()
    assert again.run() == ()
    assert len(again.driver.tasks) == 5
    assert [facts.attempts for facts in again.facts()] == [1, 1, 1, 2, 1, 1, 1, 1]


def restarting(lab: Bench) -> Behaviour:
    def run(task: LoadTask) -> Sequence[RequestRecord]:
        lab.server.life += 1
        return answers(task, failed=2)

    return run


def test_a_run_in_which_the_server_was_started_anew_is_made_again(bench):
    lab = bench()
    lab.driver = ScriptedDriver([restarting(lab), restarting(lab)])
    assert lab.run() == ()
    facts = lab.facts()
    assert [each.attempts for each in facts] == [3, 1, 1, 1, 1, 1, 1, 1]
    run: Run = lab.folder.runs()[0]
    assert not any(record.error for record in run.requests)
    went = [event for event in lab.display.events if "went away" in event]
    assert went == ["c1-i6-o4__a__000: profile lab went away during the run; trying again"] * 2


def test_each_attempt_has_other_words_so_that_it_is_as_cold_as_the_first(bench):
    lab = bench(repeats=1)
    lab.driver = ScriptedDriver([restarting(lab)])
    lab.run()
    first, second = lab.driver.tasks[:2]
    assert first.prompts[0].text != second.prompts[0].text
    assert first.folder != second.folder


def test_a_restart_that_cost_no_request_spoils_a_run_too(bench):
    """Caches and clocks of the server began anew in the middle of it."""

    def quiet(task: LoadTask) -> Sequence[RequestRecord]:
        lab.server.life += 1
        return answers(task)

    lab = bench(repeats=1)
    lab.driver = ScriptedDriver([quiet])
    lab.run()
    assert lab.facts()[0].attempts == 2


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_server_that_is_away_for_a_moment_spoils_a_run(bench, monkeypatch, comes_back: bool):
    monkeypatch.setattr("naiad_perf.servers.figures.SAMPLE_PERIOD_S", 0.001)

    def away(task: LoadTask) -> Sequence[RequestRecord]:
        triton = lab.server.script
        triton.gone, seen = True, triton.lives
        poll(lambda: triton.lives > seen + 1)
        triton.gone = not comes_back
        return answers(task)

    lab = bench(repeats=1)
    lab.driver = ScriptedDriver([away])
    assert lab.run() == ()
    assert lab.facts()[0].attempts == 2


def test_requests_that_fail_are_records_and_no_reason_to_try_again(bench):
    lab = bench([lambda task: answers(task, failed=2)] * 8)
    assert lab.run() == ()
    runs = lab.folder.runs()
    assert [run.facts.attempts for run in runs] == [1] * 8
    assert all(sum(bool(record.error) for record in run.requests) == 2 for run in runs)


def crashing(task: LoadTask) -> Sequence[RequestRecord]:
    raise LoadError("the generator crashed")


def test_a_driver_that_crashes_once_is_started_again(bench):
    lab = bench([answers, crashing])
    assert lab.run() == ()
    assert [facts.attempts for facts in lab.facts()][:3] == [1, 2, 1]


def test_a_run_that_fails_in_every_attempt_does_not_stop_the_others(bench):
    lab = bench([answers, crashing, crashing, crashing])
    failed = lab.run()
    assert failed == (FailedRun("c1-i6-o4__b__000", "the generator crashed"),)
    assert len(lab.folder.finished()) == 7
    assert "given up c1-i6-o4__b__000" in lab.display.events
    assert "c1-i6-o4__b__000: the generator crashed; given up after 3 attempts" in lab.display.events


def test_a_sweep_whose_first_run_fails_in_every_attempt_stops(bench):
    lab = bench([crashing] * 3)
    with pytest.raises(PerfError, match="the first run, c1-i6-o4__a__000, failed 3 times: the gen"):
        lab.run()
    assert len(lab.driver.tasks) == 3


def test_a_load_that_the_driver_cannot_make_stops_the_sweep(bench):
    def unable(task: LoadTask) -> Sequence[RequestRecord]:
        raise UnsupportedLoad("scripted cannot do that")

    lab = bench([answers, unable])
    with pytest.raises(UnsupportedLoad):
        lab.run()
    assert len(lab.folder.finished()) == 1


def test_a_server_that_does_not_become_healthy_stops_the_sweep(bench):
    lab = bench()
    lab.server.broken = "it does not start"
    with pytest.raises(PerfError, match="it does not start"):
        lab.run()
    assert not lab.driver.tasks
