"""NVIDIA's aiperf as a load generator, over Triton's HTTP `generate_stream`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from naiad_build.tool_environment import ToolEnvironment
from naiad_perf.drivers.aiperf_files import (
    RESPONSE_FIELD,
    HttpAnswer,
    raw_files,
    read_raw,
    template,
    write_input,
    write_tokenizer,
)
from naiad_perf.drivers.base import Driven, Driver
from naiad_perf.drivers.intended import freed_places, scheduled
from naiad_perf.drivers.limits import longest_s, places
from naiad_perf.errors import LoadError, UnsupportedLoad
from naiad_perf.processes.tool_run import last_lines, run_tool
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import LoadTask, OpenLoop

__all__ = ["AiperfDriver", "aiperf_environment", "records", "tool"]

_VERSION = "0.13.0"
_STARTING_S = 180.0
_DROPPED = frozenset(
    {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
)  # with them it refuses a tokenizer in a folder


def tool(artifacts: Path) -> ToolEnvironment:
    """Return where aiperf lives; 840 MB once installed."""
    return ToolEnvironment(
        name="aiperf",
        lock=Path(__file__).with_name("aiperf.lock"),
        artifacts=artifacts,
        pythons=(11, 14),
        needed_bytes=2_000_000_000,
    )


class AiperfDriver(Driver):
    """aiperf over HTTP: its "template" endpoint at ``/v2/models/MODEL/generate_stream``, server-sent events.

    Times: the system's clock, at the arrival of each event. A request is intended when the place it takes
    became free, or when the schedule said; see `naiad_perf.drivers.intended`.

    Failures are records, also errors inside a stream that had begun; of a refused request aiperf notes no
    end. Hanging up (`cancel_after_s`) is not supported: aiperf forgets what had come before it hung up, and
    sends the next request too early.

    It takes about ten seconds to start and end, and much more processor time a token than perf_analyzer.
    """

    name: ClassVar[str] = "aiperf"

    def __init__(self, artifacts: Path = Path(".artifacts")) -> None:
        self._tool = tool(artifacts)

    @property
    def version(self) -> str:
        """The pinned version."""
        return _VERSION

    def prepare(self, report: Callable[[str], None]) -> None:
        """Install it into an environment of its own."""
        self._tool.install(report)

    def run(self, task: LoadTask) -> Driven:
        """See `Driver.run`."""
        if task.cancel_after_s is not None:
            raise UnsupportedLoad(
                "aiperf forgets what came before it hung up (cancel_after_s): use the driver locust"
            )
        if not task.prompts:
            return Driven((), (), 0.0, None)
        command = (str(self._tool.python), "-m", "aiperf", "profile", *_arguments(task))
        log = task.folder / "aiperf.log"
        with tempfile.TemporaryDirectory(prefix="naiad-aiperf-") as scratch:  # it leaves its prompts there
            ended = run_tool(
                command,
                name=self.name,
                log=log,
                limit_s=longest_s(task) + _STARTING_S,
                env={**aiperf_environment(task.http_url), "TMPDIR": scratch},
                cwd=task.folder,
            )
        raw = raw_files(task.folder / "export")
        if not raw:  # the status says little: it is 1 as well when every request failed
            raise LoadError(f"aiperf ended with status {ended.status}; its last words:\n{last_lines(log)}")
        answers = read_raw(raw, len(task.prompts))
        return Driven(records(task, answers), command, ended.wall_s, ended.cpu_s)


def aiperf_environment(address: str = "") -> dict[str, str]:
    """Return the environment to start aiperf in: no proxy to a server on this machine."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    host = address.rpartition(":")[0].strip("[]")
    if host in {"localhost", "::1"} or host.startswith("127."):
        kept["no_proxy"] = ",".join(filter(None, (kept.get("no_proxy") or kept.get("NO_PROXY"), host)))
    return kept


def records(task: LoadTask, answers: list[HttpAnswer]) -> tuple[RequestRecord, ...]:
    """Return the records for answers in the order of the prompts.

    Raises:
        LoadError: more were under way at once than asked for.
    """
    sent = [answer.sent_ns for answer in answers]
    if isinstance(task.load, OpenLoop):
        intended = scheduled(sent, task.load.due_ns)
    else:
        order = sorted(range(len(answers)), key=lambda index: sent[index])
        try:
            since = freed_places(
                [sent[index] for index in order],
                [answers[index].ended_ns for index in order],
                places(task),
            )
        except ValueError as error:
            raise LoadError(f"aiperf did not keep its concurrency: {error}") from error
        found = dict(zip(order, since, strict=True))
        intended = [found[index] for index in range(len(answers))]
    return tuple(
        RequestRecord(
            index=index,
            intended_ns=intended[index],
            sent_ns=answer.sent_ns,
            response_ns=answer.response_ns,
            response_tokens=answer.response_tokens,
            ended_ns=answer.ended_ns,
            outcome=answer.outcome,
            error=answer.error,
            input_tokens=answer.input_tokens,
            warm_up=index < task.warm_up,
        )
        for index, answer in enumerate(answers)
    )


def _arguments(task: LoadTask) -> list[str]:
    data, tokenizer = task.folder / "input.jsonl", task.folder / "tokenizer"
    write_input(data, task)
    write_tokenizer(tokenizer)
    if isinstance(task.load, OpenLoop):
        load = ["--fixed-schedule"]
    else:
        count = str(len(task.prompts))
        load = ["--no-fixed-schedule", "--concurrency", str(places(task)), "--request-count", count]
    if task.cancel_after_s is not None:
        load += [
            "--request-cancellation-rate",
            "100",
            "--request-cancellation-delay",
            str(task.cancel_after_s),
        ]
    return [
        "--model", task.model, "--url", f"http://{task.http_url}",
        "--endpoint", f"/v2/models/{task.model}/generate_stream", "--endpoint-type", "template",
        "--streaming", "--extra-inputs", f"payload_template:{template(takes_ids=task.takes_ids)}",
        "--extra-inputs", f"response_field:{RESPONSE_FIELD}",
        "--input-file", str(data), "--custom-dataset-type", "single-turn",
        "--dataset-sampling-strategy", "sequential", *load,
        "--request-timeout-seconds", str(task.timeout_s), "--tokenizer", str(tokenizer),
        "--no-server-metrics", "--no-gpu-telemetry", "--ui", "none",
        "--export-level", "raw", "--output-artifact-dir", str(task.folder / "export"),
    ]  # fmt: skip
