"""The process behind the driver "locust": reads a task from a folder, makes the load, writes what came back.

    python -m naiad_perf.drivers.locust_load FOLDER

Users, spawning and statistics are Locust's; which prompt is next and when it is due is ours.
"""

from __future__ import annotations

# isort: off
from naiad_perf.drivers.locustfile import report  # first: it patches the standard library
# isort: on

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
from locust import User, task
from locust.env import Environment
from locust.exception import StopUser

from naiad_perf.drivers.limits import places
from naiad_perf.drivers.locust_files import read_task, write_answers
from naiad_perf.drivers.timed_streams import StreamingClient, TimedAnswer, request_for
from naiad_perf.workload.load import ClosedLoop, LoadTask, OpenLoop

__all__ = ["main"]

_POLL_S = 0.02
_LEAD_IN_NS = 50_000_000
"""A schedule starts this long after its user, so that the first request is not late already."""


class _Work:
    """What is left to send, and what came back, shared by all users."""

    def __init__(self, load: LoadTask) -> None:
        self.load = load
        self.asker = StreamingClient(load.grpc_url, load.model, load.timeout_s)
        self.requests = [request_for(prompt, takes_ids=load.takes_ids) for prompt in load.prompts]
        self.left: Iterator[int] = iter(range(len(self.requests)))
        self.answers: dict[int, tuple[int, TimedAnswer]] = {}

    def send(self, index: int, intended_ns: int | None) -> int:
        """Send one request, wait for its end and return when that was.

        Args:
            index: which.
            intended_ns: when the load called for it; None: whenever it is sent.
        """
        answer = self.asker.ask(self.requests[index], self.load.cancel_after_s)
        self.answers[index] = (answer.sent_ns if intended_ns is None else intended_ns), answer
        return answer.ended_ns or answer.sent_ns


class _WorkingUser(User):  # type: ignore[misc]  # Locust is not typed
    abstract = True

    @property
    def work(self) -> _Work:
        work: _Work = self.environment.work
        return work

    def send(self, index: int, intended_ns: int | None) -> int:
        ended_ns = self.work.send(index, intended_ns)
        report(self.environment, self.work.load.model, self.work.answers[index][1])
        return ended_ns


class PlaceUser(_WorkingUser):
    """One place of a closed loop: sends the next prompt when its last answer has ended."""

    free_since_ns: int | None = None

    @task  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        """Take one turn, or leave when nothing is left."""
        index = next(self.work.left, None)
        if index is None:
            raise StopUser
        self.free_since_ns = self.send(index, self.free_since_ns)


class ScheduleUser(_WorkingUser):
    """The one user of an open loop: sends each prompt when it is due, whatever became of the others."""

    @task  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        """Send everything."""
        load = self.work.load.load
        due = load.due_ns if isinstance(load, OpenLoop) else ()
        start_ns = _now_ns() + _LEAD_IN_NS
        under_way = []
        for index, due_ns in enumerate(due):
            gevent.sleep(max(start_ns + due_ns - _now_ns(), 0) / 1e9)
            under_way.append(gevent.spawn(self.send, index, start_ns + due_ns))
        gevent.joinall(under_way, raise_error=True)
        raise StopUser


def _now_ns() -> int:
    return round(time.monotonic() * 1e9)


def main(folder: Path) -> None:
    """Make the load described in `folder` and write the answers, and Locust's statistics, into it."""
    load = read_task(folder)
    work = _Work(load)
    closed = isinstance(load.load, ClosedLoop)
    environment: Any = Environment(user_classes=[PlaceUser if closed else ScheduleUser], host=load.grpc_url)
    environment.work = work
    failed: list[BaseException] = []
    environment.events.user_error.add_listener(lambda exception, **_: failed.append(exception))
    runner = environment.create_local_runner()
    users = places(load) if closed else 1
    runner.start(users, spawn_rate=users)
    while not failed and len(work.answers) < len(load.prompts):
        gevent.sleep(_POLL_S)
    runner.quit()
    work.asker.close()
    if failed:
        raise failed[0]
    write_answers(folder, [work.answers[index] for index in range(len(load.prompts))])
    statistics = json.dumps(environment.stats.serialize_stats())
    (folder / "locust_stats.json").write_text(statistics, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
