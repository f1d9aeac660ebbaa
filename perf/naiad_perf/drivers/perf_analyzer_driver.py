"""NVIDIA's perf_analyzer as a load generator: gRPC streams, one thread for every stream up to sixteen."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from naiad.contract.errors import Draining, EngineStalled, EngineUnavailable, parse_error
from naiad_perf.drivers.base import Driven, Driver
from naiad_perf.drivers.intended import freed_places, scheduled
from naiad_perf.drivers.limits import longest_s, places
from naiad_perf.drivers.perf_analyzer_files import (
    Answer,
    asked,
    read_export,
    write_input,
    write_intervals,
)
from naiad_perf.errors import LoadAborted, LoadError, UnsupportedLoad
from naiad_perf.processes.tool_run import Ended, last_lines, run_tool
from naiad_perf.records import Outcome, RequestRecord
from naiad_perf.tools import perf_analyzer
from naiad_perf.workload.load import LoadTask, OpenLoop

__all__ = ["PerfAnalyzerDriver", "records"]

_MOST_THREADS = 16
_GAVE_UP = re.compile(r"Failed to (?:retrieve results|maintain requested)")
_REASON = re.compile(r"^Thread \[\d+\] had error: (.+)$", re.MULTILINE)


class PerfAnalyzerDriver(Driver):
    """perf_analyzer 2.60.0 over gRPC streams.

    What it sends: each prompt once. Warm-up requests are ordinary requests that come first: its own
    ``--warmup-request-count`` sends the first prompts twice and leaves them out of the export.

    Streams: its own default, a thread and gRPC stream for each request at a time up to 16; beyond that
    several requests share one. Thread t of T sends prompts t, t + T, t + 2T, ...

    Times: those of the export (the system's clock). A request is intended when the place it takes became
    free on its thread, or when the schedule said; see `naiad_perf.drivers.intended`.

    Failures: perf_analyzer ends at the first request that fails and throws away what it measured. `run`
    then raises `LoadAborted` with what the server said (`LoadError` where the server was going down, or where
    perf_analyzer hung before it said why); loads that may fail need another driver.
    """

    name: ClassVar[str] = "perf_analyzer"

    def __init__(self, artifacts: Path = Path(".artifacts")) -> None:
        self._artifacts = artifacts

    @property
    def version(self) -> str:
        """The pinned version."""
        return perf_analyzer.VERSION

    def prepare(self, report: Callable[[str], None]) -> None:
        """Fetch the program, and on older systems the libraries it needs."""
        perf_analyzer.install(self._artifacts, report)

    def run(self, task: LoadTask) -> Driven:
        """See `Driver.run`; also raises `LoadAborted`."""
        if task.cancel_after_s is not None:
            raise UnsupportedLoad(
                "perf_analyzer cannot hang up on a request (cancel_after_s): use the driver locust"
            )
        if not task.prompts:
            return Driven((), (), 0.0, None)
        export = task.folder / "profile_export.json"
        command = [*perf_analyzer.locate(self._artifacts), *self._arguments(task, export)]
        log = task.folder / "perf_analyzer.log"
        ended = run_tool(
            command,
            name=self.name,
            log=log,
            limit_s=longest_s(task),
            port=int(task.grpc_url.rpartition(":")[2]),
            env=perf_analyzer.environment(task.grpc_url),
            hopeless=lambda: _GAVE_UP.search(log.read_text(errors="replace")) is not None,
        )
        _check_end(ended, log)
        answers = read_export(export, takes_ids=task.takes_ids)
        _compress(export)
        return Driven(records(task, answers), tuple(command), ended.wall_s, ended.cpu_s)

    def _arguments(self, task: LoadTask, export: Path) -> list[str]:
        data = task.folder / "input.json"
        write_input(data, task.prompts, takes_ids=task.takes_ids)
        if isinstance(task.load, OpenLoop):
            intervals = task.folder / "intervals_us.txt"
            write_intervals(intervals, task.load)
            load = ["--request-intervals", str(intervals)]
        else:
            load = ["--concurrency-range", str(places(task))]
        return [
            "-m", task.model, "-u", task.grpc_url, "-i", "grpc", "--streaming", "--async", *load,
            "--input-data", str(data), "--request-count", str(len(task.prompts)),
            "--max-threads", str(_threads(task)),
            "--request-parameter", f"timeout:{round(task.timeout_s * 1_000_000)}:int",
            "--profile-export-file", str(export),
        ]  # fmt: skip


def records(task: LoadTask, answers: Sequence[Answer]) -> tuple[RequestRecord, ...]:
    """Return the records for a whole export.

    The export lists the answers thread by thread, and each thread sends its prompts in their order: that
    tells equal prompts apart.

    Raises:
        LoadError: the export is not that of this task.
    """
    count, threads = len(task.prompts), _threads(task)
    if len(answers) != count:
        raise LoadError(
            f"perf_analyzer was given {count} requests and exported {len(answers)}: it leaves out answers "
            "that have no data at all"
        )
    found: dict[int, tuple[Answer, int]] = {}
    start = 0
    for thread in range(threads):
        indices = range(thread, count, threads)
        own = sorted(answers[start : start + len(indices)], key=lambda answer: answer.sent_ns)
        start += len(indices)
        for index, answer, intended_ns in zip(indices, own, _intended(task, thread, own), strict=True):
            if answer.asked != asked(task.prompts[index], takes_ids=task.takes_ids):
                raise LoadError(f"perf_analyzer's export has another request where number {index} should be")
            found[index] = answer, intended_ns
    if isinstance(task.load, OpenLoop):
        times = scheduled([found[index][0].sent_ns for index in range(count)], task.load.due_ns)
        found = {index: (found[index][0], times[index]) for index in range(count)}
    return tuple(_record(task, index, *found[index]) for index in range(count))


def _intended(task: LoadTask, thread: int, own: Sequence[Answer]) -> list[int]:
    sent = [answer.sent_ns for answer in own]
    if isinstance(task.load, OpenLoop):
        return sent  # replaced once all are known
    own_places = len(range(thread, places(task), _threads(task)))
    try:
        return freed_places(sent, [answer.ended_ns for answer in own], own_places)
    except ValueError as error:
        raise LoadError(f"perf_analyzer did not keep its concurrency: {error}") from error


def _record(task: LoadTask, index: int, answer: Answer, intended_ns: int) -> RequestRecord:
    cut = answer.finish_reason == "cancelled"  # the server ended it, for example while draining
    return RequestRecord(
        index=index,
        intended_ns=min(intended_ns, answer.sent_ns),
        sent_ns=answer.sent_ns,
        response_ns=answer.response_ns,
        response_tokens=answer.response_tokens,
        ended_ns=answer.ended_ns,
        outcome=Outcome.ERROR if cut else Outcome.OK,
        error="CANCELLED" if cut else "",
        input_tokens=answer.input_tokens,
        warm_up=index < task.warm_up,
    )


def _threads(task: LoadTask) -> int:
    """Not more than requests: a thread whose share is none sends without end."""
    return min(places(task), _MOST_THREADS)


def _check_end(ended: Ended, log: Path) -> None:
    text = log.read_text(encoding="utf-8", errors="replace")
    if _GAVE_UP.search(text):
        reasons = sorted({reason.strip() for reason in _REASON.findall(text)})
        said = "; ".join(reasons) or "nothing that perf_analyzer passed on"
        if not reasons or any(_passes(reason) for reason in reasons):
            raise LoadError(f"perf_analyzer ended at a request that failed; the server said: {said}")
        raise LoadAborted(
            "perf_analyzer ends at the first request that fails, and keeps nothing of what it measured; the "
            f"server said: {said}. Drive loads in which requests may fail with locust or aiperf"
        )
    if ended.status != 0:
        raise LoadError(f"perf_analyzer ended with status {ended.status}; its last words:\n{last_lines(log)}")


def _passes(reason: str) -> bool:
    """Whether an error is of a server that goes down or restarts, not of the request."""
    error = parse_error(reason)
    return error is None or isinstance(error, Draining | EngineUnavailable | EngineStalled)


def _compress(export: Path) -> None:
    """Keep the export at a thirtieth of its size."""
    packed = export.with_name(f"{export.name}.gz")
    with export.open("rb") as whole, gzip.open(packed, "wb", compresslevel=1) as out:
        shutil.copyfileobj(whole, out)
    export.unlink()
