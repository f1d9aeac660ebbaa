"""A load generator and a server for sweeps that answer by script, and refuse what real ones refuse."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tritonclient.grpc import model_config_pb2, service_pb2

from naiad_client import ConnectFailed
from naiad_perf.drivers.base import Driven, Driver
from naiad_perf.errors import PerfError
from naiad_perf.records import Outcome, RequestRecord, Run
from naiad_perf.servers.bench_server import BenchServer, Tell
from naiad_perf.servers.figures import ModelFacts
from naiad_perf.sweep.plan import PlannedRun
from naiad_perf.workload.load import LoadTask, OpenLoop
from naiad_perf.workload.scenario import Subject

__all__ = ["RecordingDisplay", "ScriptedDriver", "ScriptedServer", "ScriptedTriton", "answers", "servers_of"]

Behaviour = Callable[[LoadTask], Sequence[RequestRecord]]


def answers(task: LoadTask, *, failed: int = 0) -> tuple[RequestRecord, ...]:
    """One record a prompt, 10 ms apart, its tokens in two responses; the last `failed` ones are errors."""
    records = []
    for index, prompt in enumerate(task.prompts):
        start = index * 10_000_000
        bad = index >= len(task.prompts) - failed
        first = max(1, prompt.output_tokens // 2)
        counts = tuple(count for count in (first, prompt.output_tokens - first) if count)
        records.append(
            RequestRecord(
                index=index,
                intended_ns=start,
                sent_ns=start,
                response_ns=() if bad else tuple(start + 5_000_000 * (k + 1) for k in range(len(counts))),
                response_tokens=() if bad else counts,
                ended_ns=start + 10_000_000,
                outcome=Outcome.ERROR if bad else Outcome.OK,
                error="QUEUE_FULL" if bad else "",
                input_tokens=len(prompt.ids),
                warm_up=index < task.warm_up,
            )
        )
    return tuple(records)


class ScriptedDriver(Driver):
    """Does what its script says, a step a run; `answers` when that is used up."""

    name: ClassVar[str] = "scripted"

    def __init__(self, script: Sequence[Behaviour] = ()) -> None:
        self._script: Iterator[Behaviour] = iter(script)
        self.prepared = 0
        self.tasks: list[LoadTask] = []

    @property
    def version(self) -> str:
        return "1.0"

    def prepare(self, report: Callable[[str], None]) -> None:
        self.prepared += 1

    def run(self, task: LoadTask) -> Driven:
        assert self.prepared, "prepare comes first"
        assert task.folder.is_dir()
        assert not list(task.folder.iterdir()), "the folder is not empty"
        assert 0 <= task.warm_up < len(task.prompts)
        if isinstance(task.load, OpenLoop):
            assert len(task.load.due_ns) == len(task.prompts)
        (task.folder / "own.log").write_text("what the driver writes")
        self.tasks.append(task)
        records = next(self._script, answers)(task)
        return Driven(tuple(records), ("scripted", task.model), 2.0, 0.5)


@dataclass
class ScriptedTriton:
    """The unary calls of a Triton with one model."""

    model: str = "tensorrt_llm_bls"
    takes_ids: bool = False
    succeeded: int = 0
    gone: bool = False
    lives: int = 0
    """How often liveness was asked for, answered or not."""

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        assert timeout_s > 0
        self.lives += method == "ServerLive"
        if self.gone:
            raise ConnectFailed("nobody answers")
        if method == "ServerMetadata":
            return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")
        if method == "ServerLive":
            return service_pb2.ServerLiveResponse(live=True)
        if method == "ModelConfig":
            config = model_config_pb2.ModelConfig(name=self.model)
            config.model_transaction_policy.decoupled = True
            config.input.add(name="input_ids" if self.takes_ids else "text_input")
            return service_pb2.ModelConfigResponse(config=config)
        assert method == "ModelStatistics", method
        found = service_pb2.ModelStatisticsResponse()
        found.model_stats.add(name=self.model).inference_stats.success.count = self.succeeded
        return found


class ScriptedServer(BenchServer):
    """Healthy unless told otherwise; a test changes `life` to restart it."""

    def __init__(self, name: str = "profile lab", triton: ScriptedTriton | None = None) -> None:
        self.name = name
        self.grpc_url = "127.0.0.1:1"
        self.http_url = "127.0.0.1:2"
        self.script = triton or ScriptedTriton()
        self.triton = self.script  # type: ignore[assignment]  # the calls are all that is used of it
        self.life = 0
        self.health_checks = 0
        self.broken: str | None = None

    def progress(self) -> str | None:
        return None

    def incarnation(self) -> Hashable:
        return self.life

    def metrics(self) -> dict[str, float]:
        return {}

    def cpu_s(self) -> float | None:
        return 10.0 * self.script.succeeded

    def wait_healthy(self, model: str, tell: Tell) -> ModelFacts:
        self.health_checks += 1
        if self.broken:
            raise PerfError(self.broken)
        self.script.gone = False
        return ModelFacts.ask(self.script, model)


@dataclass
class servers_of:  # noqa: N801 (reads as what it is where it is used)
    """A pool in which every subject has the same server, unless one is named."""

    server: ScriptedServer
    others: dict[str, ScriptedServer] = field(default_factory=dict)

    def of(self, subject: Subject) -> BenchServer:
        return self.others.get(subject.name, self.server)


class RecordingDisplay:
    """Keeps what it was told, a line an event."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self, runs: Sequence[PlannedRun], finished: int) -> None:
        self.events.append(f"begin {len(runs)} runs, {finished} finished")

    def tell(self, line: str) -> None:
        self.events.append(line)

    def running(self, run: PlannedRun, attempt: int) -> None:
        self.events.append(f"running {run.name} attempt {attempt}")

    def done(self, planned: PlannedRun, run: Run, seconds: float) -> None:
        assert seconds >= 0
        self.events.append(f"done {planned.name}")

    def given_up(self, planned: PlannedRun) -> None:
        self.events.append(f"given up {planned.name}")
