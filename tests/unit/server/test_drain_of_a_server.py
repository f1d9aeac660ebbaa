from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from naiad.server.drain import DrainLimits, drain
from naiad.server.endpoints import Endpoints
from naiad.server.processes import TritonProcess

LIMITS = DrainLimits(total_s=1.0, settle_s=0.1)


class Engine:
    """Says how many requests are in flight, by script; the last number for ever."""

    def __init__(self, drain_file: Path, *numbers: int | None) -> None:
        self.numbers = list(numbers)
        self.asked = 0
        self.told_each_time = True
        self._drain_file = drain_file

    def in_flight(self) -> int | None:
        self.asked += 1
        self.told_each_time &= self._drain_file.exists()
        return self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]


def start(script: str) -> TritonProcess:
    server = TritonProcess.start(["/bin/sh", "-c", f"{script}"], dict(os.environ), "naiad_test_none_")
    server.output.readline()
    return server


@pytest.fixture
def server() -> Iterator[TritonProcess]:
    """Ends well when asked to."""
    running = start('trap "exit 0" TERM; echo; sleep 60 & wait')
    yield running
    running.kill()
    running.output.close()


@pytest.fixture
def deaf() -> Iterator[TritonProcess]:
    """Does not end when asked to, as with a stream that is merely open."""
    running = start('trap "" TERM; echo; sleep 60')
    yield running
    running.kill()
    running.output.close()


def run(
    server: TritonProcess, engine: Engine, drain_file: Path, limits: DrainLimits = LIMITS, stops: int = 1
) -> bool:
    return drain(server, cast(Endpoints, engine), drain_file, limits, lambda: stops > 1)


def test_the_server_is_stopped_only_when_nothing_is_in_flight(server: TritonProcess, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "run" / "drain", 3, 2, 1, 1, 0)
    assert run(server, engine, tmp_path / "run" / "drain")
    assert engine.asked > 5
    assert engine.told_each_time
    assert server.exit_status == 0


def test_a_moment_without_requests_is_not_rest(server: TritonProcess, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "drain", 1, 0, 1, 0)
    assert run(server, engine, tmp_path / "drain")
    assert engine.asked >= 5


def test_a_server_at_rest_that_will_not_end_has_cut_nothing(deaf: TritonProcess, tmp_path: Path) -> None:
    assert run(deaf, Engine(tmp_path / "drain", 0), tmp_path / "drain")
    assert deaf.exit_status is None


def test_requests_still_in_flight_at_the_limit_are_cut(deaf: TritonProcess, tmp_path: Path) -> None:
    assert not run(deaf, Engine(tmp_path / "drain", 1), tmp_path / "drain", DrainLimits(0.3, 0.1))


def test_engines_that_say_nothing_leave_the_waiting_to_triton(
    server: TritonProcess, deaf: TritonProcess, tmp_path: Path
) -> None:
    assert run(server, Engine(tmp_path / "drain", None), tmp_path / "drain")
    assert not run(deaf, Engine(tmp_path / "drain", None), tmp_path / "drain", DrainLimits(0.3, 0.1))


def test_an_abort_ends_the_waiting_at_once(deaf: TritonProcess, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "drain", 1)
    assert not run(deaf, engine, tmp_path / "drain", DrainLimits(60, 0.1), stops=2)
    assert engine.asked <= 1


def test_a_server_that_dies_while_draining_has_cut_requests(server: TritonProcess, tmp_path: Path) -> None:
    server.kill()
    assert not run(server, Engine(tmp_path / "drain", 1), tmp_path / "drain")
