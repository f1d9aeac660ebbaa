"""Runs a scenario: all runs in the planned order, each until it is whole; goes on where an earlier one ended.

A run counts only if its server was the same from beginning to end. One whose server went away is thrown away
and made again once the server is healthy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from tritonclient.grpc import service_pb2

from naiad_client import NaiadError
from naiad_perf.drivers.base import Driven, Driver
from naiad_perf.errors import LoadError, PerfError
from naiad_perf.records import Outcome, Run, RunFacts, ServerFigures
from naiad_perf.servers.bench_server import BenchServer
from naiad_perf.servers.figures import ServerWatch
from naiad_perf.sweep.folder import SweepFolder
from naiad_perf.sweep.plan import PlannedRun, plan_runs
from naiad_perf.workload.load import ClosedLoop, LoadTask
from naiad_perf.workload.making import Workload, make_workload
from naiad_perf.workload.scenario import Scenario, Subject
from naiad_perf.workload.traces import TraceRow

__all__ = ["ATTEMPTS", "Display", "FailedRun", "ServerPool", "Sweep"]

ATTEMPTS = 3
_FAULT_SHOWS_S = 3.0
"""A supervisor needs this long to notice that a process died."""
_POLL_S = 0.1


class ServerPool(Protocol):
    """Who serves which subject."""

    def of(self, subject: Subject) -> BenchServer:
        """Return the server that a subject is measured on."""


class Display(Protocol):
    """What the person at the terminal sees of a sweep."""

    def begin(self, runs: Sequence[PlannedRun], finished: int) -> None:
        """All runs are known; so many were finished by an earlier sweep."""

    def tell(self, line: str) -> None:
        """Something happened that is worth a line."""

    def running(self, run: PlannedRun, attempt: int) -> None:
        """A run starts."""

    def done(self, planned: PlannedRun, run: Run, seconds: float) -> None:
        """A run is finished and kept."""

    def given_up(self, planned: PlannedRun) -> None:
        """A run failed for good."""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that did not succeed in any attempt."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A run that was made whole, or why not."""

    run: Run | None
    reason: str = ""


class Sweep:
    """One sweep over its folder, servers and drivers."""

    def __init__(
        self,
        scenario: Scenario,
        rows: Sequence[TraceRow],
        folder: SweepFolder,
        servers: ServerPool,
        make_driver: Callable[[str], Driver],
        display: Display,
        *,
        environment: Mapping[str, str],
        prices: Mapping[str, float | None],
    ) -> None:
        """Prepare; nothing runs.

        Args:
            scenario: what is measured.
            rows: of its trace; empty without one.
            folder: where finished runs are, and are kept.
            servers: started, healthy or not.
            make_driver: by the name that a scenario gives it.
            display: told of everything.
            environment: written into every run.
            prices: hourly price in US dollars by subject; None where none is known.
        """
        self._scenario = scenario
        self._rows = rows
        self._folder = folder
        self._servers = servers
        self._make_driver = make_driver
        self._display = display
        self._environment = environment
        self._prices = prices
        self._drivers: dict[str, Driver] = {}
        self._succeeded = False

    def run(self) -> tuple[FailedRun, ...]:
        """Make every run that is not finished yet; return those that failed in every attempt.

        Raises:
            PerfError: it cannot go on: a driver or server does not start, a driver cannot make a load, or the
                very first run fails in every attempt.
        """
        runs = plan_runs(self._scenario)
        finished = self._folder.finished()
        self._display.begin(runs, sum(run.name in finished for run in runs))
        failed: list[FailedRun] = []
        for planned in runs:
            if planned.name in finished:
                continue
            started_s = time.monotonic()
            attempt = self._until_whole(planned)
            if attempt.run is None:
                if not self._succeeded and not finished:
                    raise PerfError(
                        f"the first run, {planned.name}, failed {ATTEMPTS} times: {attempt.reason}"
                    )
                failed.append(FailedRun(planned.name, attempt.reason))
                self._display.given_up(planned)
                continue
            self._succeeded = True
            self._folder.keep(planned.name, attempt.run)
            self._display.done(planned, attempt.run, time.monotonic() - started_s)
        return tuple(failed)

    def _until_whole(self, planned: PlannedRun) -> _Attempt:
        attempt = _Attempt(None)
        for number in range(1, ATTEMPTS + 1):
            self._display.running(planned, number)
            attempt = self._once(planned)
            if attempt.run is not None:
                return attempt
            again = "trying again" if number < ATTEMPTS else f"given up after {ATTEMPTS} attempts"
            self._display.tell(f"{planned.name}: {attempt.reason}; {again}")
        return attempt

    def _once(self, planned: PlannedRun) -> _Attempt:
        subject = planned.subject
        server, driver = self._servers.of(subject), self._driver(subject)
        facts = server.wait_healthy(subject.model, self._display.tell)
        files, number = self._folder.next_attempt(planned.name)
        salt = f"{self._scenario.seed}|{planned.name}|{number}"
        workload = make_workload(self._scenario, planned.point, self._rows, salt)
        task = LoadTask(
            grpc_url=server.grpc_url,
            http_url=server.http_url,
            model=subject.model,
            takes_ids=facts.takes_ids,
            prompts=workload.prompts,
            warm_up=workload.warm_up,
            load=workload.load,
            timeout_s=self._scenario.timeout_s,
            folder=files,
            cancel_after_s=self._scenario.cancel_after_s,
        )
        incarnation = server.incarnation()
        started = datetime.now(timezone.utc)
        driven, reason = None, ""
        try:
            with ServerWatch(
                server.triton, facts, server.metrics, server.cpu_s, server.forget_memory, server.memory_bytes
            ) as watch:
                try:
                    driven = driver.run(task)
                except LoadError as error:
                    reason = str(error)
                troubled = driven is None or _errors(driven) > 0
                if self._went_away(server, incarnation, watch, wait=troubled):
                    return _Attempt(None, f"{server.name} went away during the run")
                if driven is None:
                    return _Attempt(None, reason)
                figures = watch.figures(len(driven.requests) - _errors(driven))
            version = _triton_version(server)
        except NaiadError as error:
            return _Attempt(None, f"{server.name} cannot be asked: {error.message}")
        about = self._facts(planned, driver, driven, workload, figures, started, number)
        environment = {
            **self._environment,
            "triton": version,
            "streaming": "yes" if facts.decoupled else "no",
        }
        return _Attempt(Run(replace(about, environment=environment), driven.requests))

    def _went_away(self, server: BenchServer, incarnation: object, watch: ServerWatch, *, wait: bool) -> bool:
        """Whether the server is not the one it was; after failures it is watched a little longer."""
        deadline_s = time.monotonic() + (_FAULT_SHOWS_S if wait else 0.0)
        while not watch.outage and server.incarnation() == incarnation:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _driver(self, subject: Subject) -> Driver:
        name = subject.driver or self._scenario.driver
        if name not in self._drivers:
            driver = self._make_driver(name)
            driver.prepare(self._display.tell)
            self._drivers[name] = driver
        return self._drivers[name]

    def _facts(
        self,
        planned: PlannedRun,
        driver: Driver,
        driven: Driven,
        workload: Workload,
        figures: ServerFigures,
        started: datetime,
        attempts: int,
    ) -> RunFacts:
        subject, point = planned.subject, planned.point
        return RunFacts(
            subject=subject.name,
            point=point.name,
            repeat=planned.repeat,
            driver=driver.name,
            driver_version=driver.version,
            model=subject.model,
            profile=subject.profile,
            concurrency=workload.load.concurrency if isinstance(workload.load, ClosedLoop) else None,
            request_rate=point.request_rate or _rate(workload),
            input_tokens=workload.input_tokens,
            output_tokens=workload.output_tokens,
            started_utc=started.isoformat(timespec="milliseconds"),
            position=planned.position,
            command=driven.command,
            wall_s=driven.wall_s,
            client_cpu_s=driven.client_cpu_s,
            cores=os.cpu_count() or 1,
            hourly_price_usd=self._prices.get(subject.name),
            server=figures,
            attempts=attempts,
        )


def _triton_version(server: BenchServer) -> str:
    answer = server.triton.call("ServerMetadata", service_pb2.ServerMetadataRequest(), timeout_s=5.0)
    return f"{answer.name} {answer.version}"


def _errors(driven: Driven) -> int:
    return sum(record.outcome is Outcome.ERROR for record in driven.requests)


def _rate(workload: Workload) -> float | None:
    """Return the mean requests a second of a schedule; None in a closed loop."""
    if isinstance(workload.load, ClosedLoop):
        return None
    due_ns = workload.load.due_ns
    return (len(due_ns) - 1) / (due_ns[-1] / 1e9) if due_ns[-1] > 0 else None
