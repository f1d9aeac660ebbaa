"""What the driver "locust" and its process tell each other, and what the driver makes of its end."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from naiad_perf.drivers import locust_driver
from naiad_perf.drivers.locust_driver import LOCUSTFILE, LocustDriver
from naiad_perf.drivers.locust_files import read_records, read_task, write_answers, write_task
from naiad_perf.drivers.timed_streams import TimedAnswer
from naiad_perf.errors import InstallError, LoadError
from naiad_perf.processes.tool_run import Ended
from naiad_perf.records import Outcome, RequestRecord
from naiad_perf.workload.load import ClosedLoop, Load, OpenLoop
from tests.harness.load_tasks import load_task, prompts


@pytest.mark.parametrize("load", [ClosedLoop(3), OpenLoop((0, 5, 5))])
def test_a_task_arrives_as_it_was(tmp_path: Path, load: Load) -> None:
    task = load_task(tmp_path, prompts(3), load, warm_up=1, cancel_after_s=0.25)
    write_task(task)
    assert read_task(tmp_path) == task


def test_answers_become_records(tmp_path: Path) -> None:
    task = load_task(tmp_path, prompts(3), ClosedLoop(1), warm_up=1)
    answers = [
        (90, TimedAnswer(100, [110, 120], [1, 6], 125, input_tokens=5)),
        (125, TimedAnswer(126, [], [], 127, Outcome.ERROR, "QUEUE_FULL")),
        (127, TimedAnswer(128, [130], [2], 140, Outcome.CANCELLED)),
    ]
    write_answers(tmp_path, answers)
    assert read_records(task) == (
        RequestRecord(0, 90, 100, (110, 120), (1, 6), 125, input_tokens=5, warm_up=True),
        RequestRecord(1, 125, 126, (), (), 127, Outcome.ERROR, "QUEUE_FULL"),
        RequestRecord(2, 127, 128, (130,), (2,), 140, Outcome.CANCELLED),
    )


def test_missing_answers_are_not_passed_over(tmp_path: Path) -> None:
    task = load_task(tmp_path, prompts(2))
    with pytest.raises(LoadError, match="locust left no answers"):
        read_records(task)
    write_answers(tmp_path, [(1, TimedAnswer(1, [], [], 2))])
    with pytest.raises(LoadError, match="given 2 requests and reported 1"):
        read_records(task)


def test_a_process_that_fails_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: object, *, log: Path, **_: object) -> Ended:
        log.write_text("Traceback\nKeyError: 'x'\n")
        return Ended(1, 0.1, 0.1)

    monkeypatch.setattr(locust_driver, "run_tool", fail)
    with pytest.raises(LoadError, match=r"status 1; its last words:\nTraceback\nKeyError: 'x'"):
        LocustDriver().run(load_task(tmp_path, prompts(1)))


def test_nothing_to_send_is_nothing_started(tmp_path: Path) -> None:
    task = load_task(tmp_path, prompts(1))
    assert LocustDriver().run(replace(task, prompts=())).requests == ()
    assert list(tmp_path.iterdir()) == []


def test_without_locust_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(InstallError, match=r"pip install 'naiad\[bench\]'"):
        LocustDriver().prepare(list[str]().append)


def test_the_locustfile_is_there() -> None:
    assert "class NaiadUser" in LOCUSTFILE.read_text(encoding="utf-8")
