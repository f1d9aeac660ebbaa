"""Records of runs made by hand, in milliseconds, for tests that compute figures from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from naiad_perf.metrics import FIGURES
from naiad_perf.records import Outcome, RequestRecord, Run, RunFacts, ServerFigures
from naiad_perf.results import RunResult

__all__ = ["FACTS", "NS_PER_MS", "failed", "hung_up", "in_order", "request", "result_with", "run_of"]

NS_PER_MS = 1_000_000

FACTS = RunFacts(
    subject="bls",
    point="c2-i8-o16",
    repeat=0,
    driver="by hand",
    driver_version="1",
    model="tensorrt_llm_bls",
    profile="cpu",
    concurrency=2,
    request_rate=None,
    input_tokens=8,
    output_tokens=16,
    started_utc="2026-01-02T03:04:05Z",
    position=0,
    command=("by", "hand"),
    wall_s=10.0,
    client_cpu_s=5.0,
    cores=2,
    hourly_price_usd=3.6,
    server=ServerFigures(),
)


def request(
    due_ms: float,
    responses: Sequence[tuple[float, int]],
    ended_ms: float | None = None,
    *,
    sent_ms: float | None = None,
    outcome: Outcome = Outcome.OK,
    warm_up: bool = False,
    input_tokens: int | None = 8,
    index: int = 0,
) -> RequestRecord:
    """Make a request of its responses, each `(arrival, tokens)`; unless told, it ends with the last."""
    if ended_ms is None and responses:
        ended_ms = responses[-1][0]
    return RequestRecord(
        index=index,
        intended_ns=_ns(due_ms),
        sent_ns=_ns(due_ms if sent_ms is None else sent_ms),
        response_ns=tuple(_ns(at_ms) for at_ms, _ in responses),
        response_tokens=tuple(tokens for _, tokens in responses),
        ended_ns=None if ended_ms is None else _ns(ended_ms),
        outcome=outcome,
        error="QUEUE_FULL" if outcome is Outcome.ERROR else "",
        input_tokens=input_tokens,
        warm_up=warm_up,
    )


def failed(due_ms: float, ended_ms: float, responses: Sequence[tuple[float, int]] = ()) -> RequestRecord:
    """Make a request that ends in an error."""
    return request(due_ms, responses, ended_ms, outcome=Outcome.ERROR)


def hung_up(due_ms: float, ended_ms: float, responses: Sequence[tuple[float, int]] = ()) -> RequestRecord:
    """Make a request that its client cancels."""
    return request(due_ms, responses, ended_ms, outcome=Outcome.CANCELLED)


def in_order(records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    """Number the records as they stand."""
    return tuple(replace(record, index=index) for index, record in enumerate(records))


def run_of(*records: RequestRecord, facts: RunFacts = FACTS, server: ServerFigures | None = None) -> Run:
    """Make a run of the records, numbered as they stand."""
    return Run(facts if server is None else replace(facts, server=server), in_order(records))


def _ns(time_ms: float) -> int:
    return round(time_ms * NS_PER_MS)


def result_with(
    subject: str,
    repeat: int,
    position: int,
    *,
    point: str = "c1",
    figures: Mapping[str, float | None],
    facts: RunFacts = FACTS,
) -> RunResult:
    """Make the result of a run of which only some figures are defined."""
    unknown = set(figures) - set(FIGURES)
    if unknown:
        raise KeyError(f"no figures: {sorted(unknown)}")
    placed = replace(facts, subject=subject, repeat=repeat, position=position, point=point)
    return RunResult(placed, dict.fromkeys(FIGURES) | dict(figures))
