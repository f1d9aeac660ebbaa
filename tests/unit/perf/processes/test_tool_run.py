"""Load generators are programs: how they end, what they use, and that none of their processes stays."""

from __future__ import annotations

import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from naiad_perf.errors import LoadError
from naiad_perf.processes import tool_run as process
from naiad_perf.processes.tool_run import last_lines, run_tool
from tests.harness.polling import poll


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tool.log"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.2)
    monkeypatch.setattr(process, "_LOOK_S", 0.05)
    monkeypatch.setattr(process, "_DISCONNECTED_S", 0.3)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_exit_status_output_and_folder(log: Path, tmp_path: Path) -> None:
    ended = run_tool(shell("pwd; echo told >&2; exit 3"), name="tool", log=log, cwd=tmp_path)
    assert ended.status == 3
    assert log.read_text().splitlines() == [str(tmp_path), "told"]


def test_a_signal_is_a_negative_status(log: Path) -> None:
    assert run_tool(shell("kill -KILL $$"), name="tool", log=log).status == -signal.SIGKILL


def test_the_environment_given_is_the_only_one(log: Path) -> None:
    run_tool(
        ["/bin/sh", "-c", "echo $HOME:$MARK"], name="tool", log=log, env={"MARK": "mine", "PATH": "/bin"}
    )
    assert log.read_text() == ":mine\n"


def test_processor_time_of_children_counts(log: Path) -> None:
    """A child that the program waited for burns it; `os.times` in the child says how much."""
    burn = "import os\nwhile sum(os.times()[:2]) < 0.2: pass"
    ended = run_tool(shell(f"{shlex.join(python(burn))}; true"), name="tool", log=log)
    assert ended.cpu_s >= 0.2
    assert ended.wall_s > 0


def test_a_program_that_does_not_exist_is_named(log: Path) -> None:
    with pytest.raises(LoadError, match="tool does not start"):
        run_tool(["/nowhere/at/all"], name="tool", log=log)


def test_too_long_is_an_error_and_nothing_stays(log: Path, tmp_path: Path, impatient: None) -> None:
    marker = tmp_path / "pids"
    script = f"sleep 300 & echo $! > {marker}; echo $$ >> {marker}; wait"
    with pytest.raises(LoadError, match="tool did not end in time"):
        run_tool(shell(script), name="tool", log=log, limit_s=0.5)
    pids = [int(line) for line in marker.read_text().split()]
    poll(lambda: not any(_alive(pid) for pid in pids))


def test_children_left_by_a_program_that_ended_are_ended(log: Path, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    ended = run_tool(shell(f"sleep 300 & echo $! > {marker}"), name="tool", log=log)
    assert ended.status == 0
    poll(lambda: not _alive(int(marker.read_text())))


def test_a_program_deaf_to_sigterm_is_killed(log: Path, impatient: None) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with pytest.raises(LoadError, match="in time"):
        run_tool(shell(script), name="tool", log=log, limit_s=0.3)


def test_ctrl_c_ends_the_program_and_goes_on_up(log: Path, impatient: None) -> None:
    """Sent while the program is waited for: at any moment it could interrupt a library, which then warns."""

    def interrupt_once_written() -> bool:
        if log.read_text() != "":
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        run_tool(
            shell("echo $$; sleep 300"), name="tool", log=log, limit_s=60, hopeless=interrupt_once_written
        )
    assert not _alive(int(log.read_text()))


def test_a_hopeless_program_has_a_little_time_to_say_why(log: Path, impatient: None) -> None:
    ended = run_tool(
        shell("echo failed; sleep 0.1; echo because; exit 99"),
        name="tool",
        log=log,
        limit_s=60,
        hopeless=lambda: "failed" in log.read_text(),
    )
    assert (ended.status, log.read_text()) == (99, "failed\nbecause\n")


def test_a_hopeless_program_that_hangs_is_ended(log: Path, impatient: None) -> None:
    ended = run_tool(
        shell("echo failed; sleep 300"),
        name="tool",
        log=log,
        limit_s=60,
        hopeless=lambda: "failed" in log.read_text(),
    )
    assert ended.status == -signal.SIGTERM


class TestConnection:
    """A generator whose server went away may wait for ever for answers."""

    @pytest.fixture
    def server(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            yield listening

    def test_one_that_lost_its_connection_and_waits_is_stuck(
        self, log: Path, server: socket.socket, impatient: None
    ) -> None:
        port = server.getsockname()[1]
        script = (
            f"import socket, time; held = socket.create_connection(('127.0.0.1', {port})); "
            "time.sleep(1); held.close(); time.sleep(300)"
        )
        with pytest.raises(LoadError, match="tool lost its connection"):
            run_tool(python(script), name="tool", log=log, limit_s=60, port=port)

    def test_one_that_is_connected_may_wait(self, log: Path, server: socket.socket, impatient: None) -> None:
        port = server.getsockname()[1]
        script = (
            f"import socket, time; held = socket.create_connection(('127.0.0.1', {port})); time.sleep(300)"
        )
        with pytest.raises(LoadError, match="in time"):
            run_tool(python(script), name="tool", log=log, limit_s=1.5, port=port)

    def test_one_that_still_computes_may_be_without_a_connection(
        self, log: Path, server: socket.socket, impatient: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As it is while it writes down what it measured. Long looks: others want the processor as well."""
        monkeypatch.setattr(process, "_LOOK_S", 0.5)
        monkeypatch.setattr(process, "_DISCONNECTED_S", 1.2)
        port = server.getsockname()[1]
        script = (
            f"import socket, time; held = socket.create_connection(('127.0.0.1', {port})); "
            "time.sleep(1.5); held.close()\nwhile True: pass"
        )
        with pytest.raises(LoadError, match="in time"):
            run_tool(python(script), name="tool", log=log, limit_s=5, port=port)

    def test_one_that_never_connected_is_not_judged(
        self, log: Path, server: socket.socket, impatient: None
    ) -> None:
        with pytest.raises(LoadError, match="in time"):
            run_tool(shell("sleep 300"), name="tool", log=log, limit_s=1, port=server.getsockname()[1])


def test_last_lines_leaves_blank_ones_out(log: Path) -> None:
    log.write_text("one\n\ntwo\n   \nthree\n")
    assert last_lines(log, 2) == "two\nthree"


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
