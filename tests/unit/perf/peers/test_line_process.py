"""A child that speaks in lines of JSON: asked, dying, silent, babbling, and never left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from naiad_perf.errors import PerfError
from naiad_perf.peers.line_process import LineProcess
from tests.harness.polling import poll

ECHO = "import json, sys\nfor line in sys.stdin: print(json.dumps({'heard': json.loads(line)}), flush=True)"

Start = Callable[[str], LineProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[LineProcess] = []

    def run(program: str) -> LineProcess:
        command = [sys.executable, "-c", program]
        started.append(LineProcess(command, name="the child", log=tmp_path / "log", env={"MOOD": "good"}))
        return started[-1]

    yield run
    for process in started:
        process.stop()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def test_it_answers_line_by_line_and_ends_with_its_stdin(start: Start) -> None:
    process = start(ECHO)
    assert process.ask({"n": 1}, 60) == {"heard": {"n": 1}}
    assert process.ask({"n": 2}, 60) == {"heard": {"n": 2}}
    assert [process.ended] == [False]
    process.stop()
    process.stop()
    assert process.ended
    assert gone(process.pid)


def test_it_has_our_environment_and_more_in_a_session_of_its_own(start: Start) -> None:
    process = start("import json, os; print(json.dumps({'sid': os.getsid(0), **os.environ}))")
    told = process.answer(60)
    assert told["sid"] == process.pid
    assert (told["MOOD"], told["PATH"]) == ("good", os.environ["PATH"])


def test_an_error_that_it_tells_is_ours(start: Start) -> None:
    with pytest.raises(PerfError, match="the child: out of luck"):
        start('print(\'{"error": "out of luck"}\', flush=True); input()').answer(60)


def test_its_last_words_are_in_the_message(start: Start) -> None:
    process = start("import sys; sys.exit('no such model')")
    with pytest.raises(PerfError, match="ended with status 1; its last lines:\nno such model"):
        process.answer(60)


def test_death_between_two_questions_is_told(start: Start) -> None:
    process = start("import sys; print('{}', flush=True); sys.exit(3)")
    process.answer(60)
    poll(lambda: process.ended)
    with pytest.raises(PerfError, match="status 3"):
        process.ask({"n": 1}, 60)


@pytest.mark.parametrize("line", ["Loading weights: 3%", "[1, 2]"])
def test_what_is_no_object_is_refused(start: Start, line: str) -> None:
    process = start(f"print({line!r}, flush=True); input()")
    with pytest.raises(PerfError, match="which is no JSON object"):
        process.answer(60)
    assert gone(process.pid)


def test_silence_ends_it_and_what_it_started(start: Start) -> None:
    process = start(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('{\"child\": %d}' % child.pid, flush=True)\n"
        "child.wait()"
    )
    child = process.answer(60)["child"]
    with pytest.raises(PerfError, match="did not answer within 0 s"):
        process.answer(0.05)
    assert gone(process.pid)
    poll(lambda: gone(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def test_a_program_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="the child does not start"):
        LineProcess([str(tmp_path / "nothing")], name="the child", log=tmp_path / "log")
