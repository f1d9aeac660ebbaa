"""Sweeps of a made-up server, so that reports and comparisons have something to show without a real one.

The server steps: each step gives every running stream one token, and takes longer the more streams run and
the more prompts joined. Clients, errors and cancels are as real ones; noise comes from a seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from naiad_perf.records import Outcome, RequestRecord, Run, RunFacts, ServerFigures, write_run

__all__ = ["Engine", "Load", "make_run", "synthetic_runs", "write_sweep"]

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Engine:
    """A subject.

    Attributes:
        name: of the subject.
        step_ms: time of a step with one stream.
        stream_ms: what each further stream adds to a step.
        prefill_ms: what each prompt that joins adds to its step.
        most: streams at once; more wait.
        coalesced: tokens of a response after the first; the last one has what is left.
        error_share: of requests that fail at their first token.
        cancel_share: of requests whose client hangs up after half of the answer.
        noise: standard deviation of the speed of whole runs.
        price_usd: an hour of it.
    """

    name: str
    step_ms: float = 10.0
    stream_ms: float = 0.5
    prefill_ms: float = 5.0
    most: int = 32
    coalesced: int = 1
    error_share: float = 0.0
    cancel_share: float = 0.0
    noise: float = 0.02
    price_usd: float | None = 0.09


@dataclass(frozen=True, slots=True)
class Load:
    """A point: exactly one of `concurrency` and `rate`."""

    concurrency: int | None = None
    rate: float | None = None
    requests: int = 40
    warm_up: int = 4
    input_tokens: int = 64
    output_tokens: int = 32

    @property
    def point(self) -> str:
        """Name of the point."""
        load = f"c{self.concurrency}" if self.concurrency else f"r{self.rate:g}"
        return f"{load}-i{self.input_tokens}-o{self.output_tokens}"


@dataclass(slots=True)
class _Stream:
    index: int
    due_s: float
    sent_s: float
    wanted: int
    times_s: list[float] = field(default_factory=list)
    outcome: Outcome = Outcome.OK

    @property
    def stops_at(self) -> int:
        if self.outcome is Outcome.ERROR:
            return 0
        return self.wanted if self.outcome is Outcome.OK else max(1, self.wanted // 2)


def make_run(engine: Engine, load: Load, repeat: int, position: int, seed: int = 0) -> Run:
    """Serve one run; the same arguments give the same records."""
    chance = random.Random(f"{seed}-{engine.name}-{load.point}-{repeat}")
    drift = 1 + 0.03 * random.Random(f"{seed}-drift-{load.point}-{repeat}").gauss(0, 1)  # meets all subjects
    pace = max(0.2, drift * (1 + engine.noise * chance.gauss(0, 1)))
    streams = _serve(engine, load, chance, pace)
    records = tuple(
        _record(stream, load, engine.coalesced) for stream in sorted(streams, key=lambda s: s.index)
    )
    wall_s = max(record.ended_ns or 0 for record in records) / _NS_PER_S
    tokens = sum(record.output_tokens for record in records)
    facts = RunFacts(
        subject=engine.name,
        point=load.point,
        repeat=repeat,
        driver="synthetic",
        driver_version="1",
        model=f"tensorrt_llm_{engine.name}",
        profile="synthetic",
        concurrency=load.concurrency,
        request_rate=load.rate,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        started_utc="2026-01-02T03:04:05Z",
        position=position,
        command=("perf_analyzer", "-m", engine.name, "--request-count", str(load.requests), "--streaming"),
        wall_s=wall_s,
        client_cpu_s=wall_s * 0.1 + tokens * 1e-4,
        cores=2,
        hourly_price_usd=engine.price_usd,
        server=ServerFigures(
            requests=sum(record.outcome is Outcome.OK for record in records),
            failed=sum(record.outcome is Outcome.ERROR for record in records),
            queue_ns=sum(round((s.times_s or [s.sent_s])[0] * 1e9 - s.sent_s * 1e9) // 4 for s in streams),
            compute_ns=sum(
                round(((s.times_s or [s.sent_s])[-1] - s.sent_s) * 0.75 * _NS_PER_S) for s in streams
            ),
            kv_tokens_peak=min(engine.most, load.concurrency or 8) * (load.input_tokens + load.output_tokens),
            kv_tokens_max=engine.most * 2 * (load.input_tokens + load.output_tokens),
            cpu_s=wall_s * 1.6,
        ),
        environment={"machine": "made up, 2 cores", "python": "3.11", "naiad": "0.1.0"},
    )
    return Run(facts, records)


def _serve(engine: Engine, load: Load, chance: random.Random, pace: float) -> list[_Stream]:
    total = load.warm_up + load.requests
    due = _arrivals(load, total, chance)  # of a closed loop: the first of each place
    waiting: list[tuple[float, int]] = [(at_s, index) for index, at_s in enumerate(due)]
    heapq.heapify(waiting)
    sent, now_s = len(due), 0.0
    running: list[_Stream] = []
    done: list[_Stream] = []
    while len(done) < total:
        if not running and waiting:
            now_s = max(now_s, waiting[0][0])
        joined = 0
        while waiting and waiting[0][0] <= now_s and len(running) < engine.most:
            due_s, index = heapq.heappop(waiting)
            running.append(_stream(engine, load, chance, index, due_s))
            joined += 1
        step_ms = engine.step_ms + engine.stream_ms * (len(running) - 1) + engine.prefill_ms * joined
        now_s += step_ms * pace * (1 + 0.05 * chance.random()) / 1000
        for stream in list(running):
            stream.times_s.append(now_s)
            if len(stream.times_s) >= stream.stops_at:
                running.remove(stream)
                done.append(stream)
                if load.concurrency and sent < total:
                    heapq.heappush(waiting, (now_s, sent))
                    sent += 1
    return done


def _arrivals(load: Load, total: int, chance: random.Random) -> list[float]:
    if load.concurrency is not None:
        return [0.0] * min(load.concurrency, total)
    at_s, arrivals = 0.0, []
    for _ in range(total):
        at_s += chance.expovariate(load.rate or 1.0)
        arrivals.append(at_s)
    return arrivals


def _stream(engine: Engine, load: Load, chance: random.Random, index: int, due_s: float) -> _Stream:
    stream = _Stream(index, due_s, due_s + chance.expovariate(1000), load.output_tokens)
    draw = chance.random()
    if draw < engine.error_share:
        stream.outcome = Outcome.ERROR
    elif draw < engine.error_share + engine.cancel_share:
        stream.outcome = Outcome.CANCELLED
    return stream


def _record(stream: _Stream, load: Load, coalesced: int) -> RequestRecord:
    times_ns = [max(round(at_s * _NS_PER_S), round(stream.sent_s * _NS_PER_S)) for at_s in stream.times_s]
    ended_ns = times_ns[-1]
    if stream.outcome is Outcome.ERROR:
        times_ns = []
    groups = [times_ns[:1], *(times_ns[at : at + coalesced] for at in range(1, len(times_ns), coalesced))]
    groups = [group for group in groups if group]
    return RequestRecord(
        index=stream.index,
        intended_ns=round(stream.due_s * _NS_PER_S),
        sent_ns=round(stream.sent_s * _NS_PER_S),
        response_ns=tuple(group[-1] for group in groups),
        response_tokens=tuple(len(group) for group in groups),
        ended_ns=ended_ns,
        outcome=stream.outcome,
        error="[QUEUE_FULL] try again later" if stream.outcome is Outcome.ERROR else "",
        input_tokens=load.input_tokens,
        warm_up=stream.index < load.warm_up,
    )


def synthetic_runs(
    engines: Sequence[Engine], loads: Sequence[Load], repeats: int, seed: int = 0
) -> Iterable[Run]:
    """Yield all runs of a sweep in the order of running: engines take turns, every other repeat backwards."""
    position = 0
    for repeat in range(repeats):
        pairs = [(load, engine) for load in loads for engine in engines]
        for load, engine in pairs[:: -1 if repeat % 2 else 1]:
            yield make_run(engine, load, repeat, position, seed)
            position += 1


def write_sweep(
    folder: Path,
    engines: Sequence[Engine],
    loads: Sequence[Load],
    repeats: int,
    *,
    seed: int = 0,
    scenario: str | None = None,
) -> None:
    """Write a sweep's folder, with the text of a scenario beside the runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in synthetic_runs(engines, loads, repeats, seed):
        write_run(run, folder / f"{run.facts.point}__{run.facts.subject}__{run.facts.repeat}.parquet")
    if scenario is not None:
        (folder / "scenario.yaml").write_text(scenario, encoding="utf-8")
