"""The folder of a sweep: what stays, what is refused, and that nothing is half-written."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from naiad_perf.errors import PerfError, RecordError, ScenarioError
from naiad_perf.sweep.folder import SweepFolder
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.strict_yaml import validated
from tests.harness.recorded_runs import FACTS, request, run_of


def scenario(**changes: object) -> Scenario:
    content = {
        "name": "lab",
        "subjects": [{"name": "a", "profile": "cpu"}],
        "load": {"concurrency": [1, 8]},
        "lengths": {"input": 4, "output": 2},
        "requests": 5,
        **changes,
    }
    return validated(Scenario, {key: value for key, value in content.items() if value is not None}, "test")


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    found = SweepFolder(tmp_path / "out")
    with found.held():
        found.begin(scenario(), "name: lab  # as given\n", anew=False)
    return found


def keep(folder: SweepFolder, name: str = "c1-i4-o2__a__000") -> None:
    folder.keep(name, run_of(request(0, [(1, 2)])))


def test_a_new_folder_holds_the_scenario_as_it_was_given(folder: SweepFolder):
    assert (folder.path / "scenario.yaml").read_text() == "name: lab  # as given\n"
    assert folder.finished() == frozenset()
    assert folder.runs() == []


def test_finished_runs_are_known_by_name_and_read_in_order_of_running(folder: SweepFolder):
    one, other = run_of(request(0, [(1, 2)])), run_of(request(5, [(7, 2)]))
    folder.keep("b", replace(one, facts=replace(FACTS, position=1)))
    folder.keep("a", replace(other, facts=replace(FACTS, position=4)))
    folder.keep("c", replace(other, facts=replace(FACTS, position=0)))
    assert folder.finished() == {"a", "b", "c"}
    assert [run.facts.position for run in folder.runs()] == [0, 1, 4]


def test_half_written_files_are_no_finished_runs(folder: SweepFolder):
    keep(folder)
    (folder.path / ".c8-i4-o2__a__000.parquet.77").write_bytes(b"half")
    assert folder.finished() == {"c1-i4-o2__a__000"}
    folder.begin(scenario(), "", anew=False)


def test_the_same_scenario_goes_on(folder: SweepFolder):
    keep(folder)
    folder.begin(scenario(), "", anew=False)
    assert len(folder.finished()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"repeats": 9},
        {"summary": "other words"},
        {"slos": {"ttft_ms": 3}},
        {"error_budget": 0.5},
    ],
)
def test_what_no_run_depends_on_may_change(folder: SweepFolder, changes: dict[str, object]):
    keep(folder)
    folder.begin(scenario(**changes), "", anew=False)
    assert len(folder.finished()) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": 6}, "requests: 5 -> 6"),
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"driver": "locust"}, 'driver: "perf_analyzer" -> "locust"'),
        ({"load": {"concurrency": [1]}}, "load: "),
        ({"subjects": [{"name": "a", "profile": "synthetic"}]}, "subjects: "),
        ({"requests": None, "requests_per_stream": 5}, "requests_per_stream: null -> 5"),
    ],
)
def test_another_scenario_is_refused_with_what_changed_and_what_to_do(
    folder: SweepFolder, changes: dict[str, object], said: str
):
    keep(folder)
    with pytest.raises(ScenarioError) as refused:
        folder.begin(scenario(**changes), "new", anew=False)
    message = str(refused.value)
    assert "has 1 finished runs of another scenario" in message
    assert said in message
    assert "--out" in message
    assert "--anew" in message
    assert (folder.path / "scenario.yaml").read_text() == "name: lab  # as given\n"
    assert len(folder.finished()) == 1


def test_without_finished_runs_the_scenario_may_change(folder: SweepFolder):
    folder.begin(scenario(requests=6), "new", anew=False)
    keep(folder)
    with pytest.raises(ScenarioError, match="requests: 6 -> 5"):
        folder.begin(scenario(), "", anew=False)


def test_anew_forgets_runs_and_drivers_files_and_nothing_else(folder: SweepFolder):
    keep(folder)
    folder.next_attempt("c1-i4-o2__a__000")
    (folder.path / "notes.txt").write_text("mine")
    folder.begin(scenario(requests=6), "new", anew=True)
    assert folder.finished() == frozenset()
    assert folder.next_attempt("c1-i4-o2__a__000")[1] == 1
    assert (folder.path / "notes.txt").read_text() == "mine"
    assert (folder.path / "scenario.yaml").read_text() == "new"


def test_a_trace_is_known_by_its_content_wherever_it_lies(tmp_path: Path):
    def wanted(path: Path) -> Scenario:
        trace = {"format": "azure", "file": str(path)}
        return scenario(lengths=None, trace=trace, load={"replay": True})

    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, second):
        path.write_text("the same")
    folder = SweepFolder(tmp_path / "out")
    with folder.held():
        folder.begin(wanted(first), "", anew=False)
    keep(folder)
    folder.begin(wanted(second), "", anew=False)
    second.write_text("changed")
    with pytest.raises(ScenarioError, match="trace: "):
        folder.begin(wanted(second), "", anew=False)
    assert str(tmp_path) not in json.dumps(json.loads((folder.path / "sweep.json").read_text()))


def test_attempts_are_numbered_on_and_their_folders_empty(folder: SweepFolder):
    first, number = folder.next_attempt("x")
    assert number == 1
    (first / "left").touch()
    second, number = folder.next_attempt("x")
    assert number == 2
    assert not list(second.iterdir())
    assert folder.next_attempt("y")[1] == 1


def test_two_sweeps_cannot_have_the_same_folder(folder: SweepFolder):
    other = SweepFolder(folder.path)
    with folder.held(), pytest.raises(PerfError, match="another sweep is writing"), other.held():
        pass
    with SweepFolder(folder.path).held():
        pass


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(PerfError, match="cannot be written"), SweepFolder(tmp_path / "file" / "out").held():
        pass


def test_a_run_that_cannot_be_written_leaves_nothing_that_looks_finished(folder: SweepFolder, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(PerfError, match=r"the run a__b__000 cannot be kept in .*No space left"):
        keep(folder, "a__b__000")
    assert folder.finished() == frozenset()


def test_the_newest_run_is_the_one_written_last(folder: SweepFolder):
    assert folder.newest() is None
    for position, name in enumerate(("b", "a")):
        run = run_of(request(0, [(1, 2)]))
        folder.keep(name, replace(run, facts=replace(FACTS, position=position)))
        os.utime(folder.path / f"{name}.parquet", ns=(position, position))
    newest = folder.newest()
    assert newest is not None
    assert newest.facts.position == 1


def test_a_damaged_record_is_refused_by_name_and_measured_again_once_deleted(folder: SweepFolder):
    keep(folder)
    damaged = folder.path / "c1-i4-o2__a__000.parquet"
    damaged.write_bytes(b"PAR1 no longer")
    with pytest.raises(RecordError, match=r"c1-i4-o2__a__000\.parquet is not a readable .*\n.*delete it"):
        folder.runs()
    damaged.unlink()
    assert folder.runs() == []
