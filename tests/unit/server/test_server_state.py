from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from naiad.server.config import ServeConfig
from naiad.server.errors import ServerError
from naiad.server.journal import Journal
from naiad.server.state import Phase, ServerState, read_state, write_state
from tests.unit.server.stub_process import dead_pid

STATE = ServerState(Phase.READY, "ready after 1 s", os.getpid(), 7, "127.0.0.1", 8000, 8001, 8002, 3, 12.5)


def test_a_state_reads_back_as_written(tmp_path: Path) -> None:
    write_state(tmp_path / "run" / "s.json", STATE)
    assert read_state(tmp_path / "run" / "s.json") == STATE


@pytest.mark.parametrize("phase", list(Phase))
def test_only_the_ready_phase_is_ready(phase: Phase) -> None:
    assert replace(STATE, phase=phase).ready == (phase is Phase.READY)


def test_a_state_whose_supervisor_is_gone_reads_as_stopped(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_state(path, replace(STATE, pid=dead_pid()))
    state = read_state(path)
    assert state.phase is Phase.STOPPED
    assert state.server_pid is None
    assert "was ready" in state.reason


def test_a_new_state_replaces_the_file_whole_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_state(path, STATE)
    before = path.stat().st_ino
    write_state(path, replace(STATE, phase=Phase.DRAINING))
    assert path.stat().st_ino != before  # a new file, renamed: a reader of the old one has it whole
    assert os.listdir(tmp_path) == ["s.json"]


def test_no_state_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="naiad serve"):
        read_state(tmp_path / "none.json")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"phase": "odd", "ready": true}', '{"phase": "ready", "ready": 1}']
)
def test_a_foreign_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ServerError, match="not a state file"):
        read_state(path)


def test_a_state_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    journal = Journal(ServeConfig(tmp_path, tmp_path))
    journal.enter(Phase.READY, "fine")
    assert journal.phase is Phase.READY
    assert "cannot write" in caplog.text
