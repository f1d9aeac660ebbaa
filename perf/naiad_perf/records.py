"""What a run was and what came back: one record a request, one Parquet file a run, whatever drove it.

Times are whole nanoseconds on the driver's own clock: only differences within one run mean anything.
"""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from naiad_perf.errors import RecordError

__all__ = [
    "Outcome",
    "RequestRecord",
    "Run",
    "RunFacts",
    "ServerFigures",
    "check_records_work",
    "read_run",
    "write_run",
]

_FACTS_KEY = b"naiad.run"
_FORMAT = 1


class Outcome(Enum):
    """How a request ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as its client saw it.

    Attributes:
        index: position in the order of sending intended.
        intended_ns: when the load called for it. In a closed loop, when a place became free; in an open one,
            what the schedule said. A client that is late sends later, and the wait belongs to the latency.
        sent_ns: when it was sent; not before `intended_ns`.
        response_ns: arrival of every response that carried at least one token, in order.
        response_tokens: tokens in each of them; as many numbers, each at least 1.
        ended_ns: arrival of the final message, an error, or the moment of cancelling; None if it never came.
        outcome: how it ended.
        error: code or text of the error, empty otherwise.
        input_tokens: length of the prompt; None where nobody counted.
        warm_up: sent before measuring began, so in no figure.
    """

    index: int
    intended_ns: int
    sent_ns: int
    response_ns: tuple[int, ...]
    response_tokens: tuple[int, ...]
    ended_ns: int | None
    outcome: Outcome = Outcome.OK
    error: str = ""
    input_tokens: int | None = None
    warm_up: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot have happened, rather than let it into a mean.

        Raises:
            RecordError: times run backwards, or responses and token counts do not match.
        """
        times = (self.intended_ns, self.sent_ns, *self.response_ns)
        if self.ended_ns is not None:
            times += (self.ended_ns,)
        if any(later < earlier for earlier, later in itertools.pairwise(times)):
            raise RecordError(f"request {self.index}: its times run backwards: {times}")
        if len(self.response_ns) != len(self.response_tokens):
            raise RecordError(
                f"request {self.index}: {len(self.response_ns)} responses, {len(self.response_tokens)} counts"
            )
        if any(tokens < 1 for tokens in self.response_tokens):
            raise RecordError(f"request {self.index}: a response without tokens is not one: leave it out")

    @property
    def output_tokens(self) -> int:
        """Tokens received, of however the request ended."""
        return sum(self.response_tokens)


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What the server counted during a run, warm-up included; None where it does not say.

    Attributes:
        requests: requests that succeeded.
        failed: requests that failed.
        queue_ns: time in Triton's queue, summed over requests.
        compute_ns: time in the model, summed over requests; None for streaming (decoupled) models of
            Triton's Python backend, of which Triton counts only the handing over.
        engine_queue_ns: from a request's arrival at the engine to its first step, summed, as Naiad counts.
        engine_ns: from a request's arrival at the engine to its last token, summed, as Naiad counts.
        kv_tokens_peak: most tokens of KV cache in use at once, as sampled.
        kv_tokens_max: tokens the KV cache holds.
        cpu_s: processor time of the server's processes.
        memory_bytes: most resident memory of the server's processes at once, as far as it is known.
    """

    requests: int | None = None
    failed: int | None = None
    queue_ns: int | None = None
    compute_ns: int | None = None
    engine_queue_ns: int | None = None
    engine_ns: int | None = None
    kv_tokens_peak: int | None = None
    kv_tokens_max: int | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What was run, where and how: everything about a run that is not about one request.

    Attributes:
        subject: what is compared: a name from the scenario, for example "bls".
        point: name of the point of the sweep, the same for all subjects, for example "c32-i128-o64".
        repeat: number of the repeat, from 0; the same repeat of two subjects ran one after the other.
        driver: name of the driver.
        driver_version: its version.
        model: Triton model asked.
        profile: profile served, where known.
        concurrency: streams at once in a closed loop; None in an open one.
        request_rate: mean requests a second of an open loop; None in a closed one.
        input_tokens: mean prompt length asked for.
        output_tokens: mean answer length asked for.
        started_utc: ISO 8601.
        position: place in the order of running, from 0.
        command: what was started.
        wall_s: seconds the driver ran.
        client_cpu_s: processor time of the driver's processes; None where not known.
        cores: processors of the client's machine.
        hourly_price_usd: of the serving machine; None where the profile states none.
        server: what the server counted.
        environment: versions and machine, for the report.
        attempts: how often the run was started until it completed.
    """

    subject: str
    point: str
    repeat: int
    driver: str
    driver_version: str
    model: str
    profile: str | None
    concurrency: int | None
    request_rate: float | None
    input_tokens: float
    output_tokens: float
    started_utc: str
    position: int
    command: tuple[str, ...]
    wall_s: float
    client_cpu_s: float | None
    cores: int
    hourly_price_usd: float | None = None
    server: ServerFigures = field(default_factory=ServerFigures)
    environment: dict[str, str] = field(default_factory=dict)
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its requests, warm-up included, in order of `index`."""

    facts: RunFacts
    requests: tuple[RequestRecord, ...]

    @property
    def measured(self) -> tuple[RequestRecord, ...]:
        """Requests that count: all but warm-up."""
        return tuple(record for record in self.requests if not record.warm_up)

    @property
    def succeeded(self) -> tuple[RequestRecord, ...]:
        """Measured requests that got their whole answer: the only ones latencies are made of."""
        return tuple(record for record in self.measured if record.outcome is Outcome.OK)


def _arrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet part only when they are needed: they belong to the extra `bench`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise RecordError(f"records of runs need pyarrow, of the extra naiad[bench]: {error}") from error
    return pyarrow, pyarrow.parquet


def check_records_work() -> None:
    """Raise now what reading and writing would raise later.

    Raises:
        RecordError: pyarrow is missing, or does not fit the other packages.
    """
    _arrow()


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            pa.field("index", pa.int64(), nullable=False),
            pa.field("intended_ns", pa.int64(), nullable=False),
            pa.field("sent_ns", pa.int64(), nullable=False),
            pa.field("response_ns", pa.list_(pa.int64()), nullable=False),
            pa.field("response_tokens", pa.list_(pa.int32()), nullable=False),
            pa.field("ended_ns", pa.int64()),
            pa.field("outcome", pa.string(), nullable=False),
            pa.field("error", pa.string(), nullable=False),
            pa.field("input_tokens", pa.int32()),
            pa.field("warm_up", pa.bool_(), nullable=False),
        ]
    )


def write_run(run: Run, path: Path) -> None:
    """Write a run as Parquet; the file appears whole or not at all.

    Raises:
        RecordError: pyarrow is missing.
    """
    pa, pq = _arrow()
    rows = [{**asdict(record), "outcome": record.outcome.value} for record in run.requests]
    facts = {"format": _FORMAT, **asdict(run.facts)}
    table = pa.Table.from_pylist(rows, schema=_schema(pa))
    table = table.replace_schema_metadata({_FACTS_KEY: json.dumps(facts).encode()})
    making = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(table, making, compression="zstd")
        making.replace(path)
    finally:
        making.unlink(missing_ok=True)


def read_run(path: Path) -> Run:
    """Read what `write_run` wrote.

    Raises:
        RecordError: the file is no such record, or of another format; or pyarrow is missing.
    """
    pa, pq = _arrow()
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).split(":", 1)[-1].strip()
        raise RecordError(
            f"{path} is not a readable record of a run: {reason}\n"
            "delete it, and the same sweep command measures that run again"
        ) from error
    text = (table.schema.metadata or {}).get(_FACTS_KEY)
    if text is None:
        raise RecordError(f"{path} is a Parquet file, but not a record of a run")
    facts: dict[str, Any] = json.loads(text)
    if facts.pop("format", None) != _FORMAT:
        raise RecordError(f"{path} was written by another version of this program: run the sweep anew")
    facts["server"] = ServerFigures(**facts["server"])
    facts["command"] = tuple(facts["command"])
    return Run(RunFacts(**facts), tuple(_record(row) for row in table.to_pylist()))


def _record(row: dict[str, Any]) -> RequestRecord:
    for name in ("response_ns", "response_tokens"):
        row[name] = tuple(row[name])
    return RequestRecord(**{**row, "outcome": Outcome(row["outcome"])})
