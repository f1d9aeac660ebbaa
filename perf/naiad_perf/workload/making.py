"""The prompts of a run and when they are due, made from a scenario; the same each time it is asked for.

Lengths and due times depend on seed and point only: every subject, driver and repeat gets the same load.
The words depend on subject, repeat and attempt as well, so that no run finds another one's prefixes in a
server's KV cache. Within a run prompts differ from their first word on, except where a trace says that they
begin alike.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from naiad_perf.errors import ScenarioError
from naiad_perf.sweep.plan import Point
from naiad_perf.workload.arrivals import poisson_arrivals, replayed_arrivals
from naiad_perf.workload.load import ClosedLoop, Load, OpenLoop, Prompt
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.traces import MOONCAKE_BLOCK_TOKENS, TraceRow
from naiad_perf.workload.words import VOCABULARY, spelled, text_of, token_ids_of

__all__ = ["Workload", "distinct_prompts", "make_workload"]

_WARM_UP_OPEN = 4
_DISTINCT_WORDS = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """What a driver is to send.

    Attributes:
        prompts: warm-up first.
        warm_up: how many of them are warm-up.
        load: closed or open.
        input_tokens: mean prompt length of the measured ones.
        output_tokens: mean answer length of the measured ones.
    """

    prompts: tuple[Prompt, ...]
    warm_up: int
    load: Load
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class _Shape:
    """Lengths of one request, and the blocks its prompt is made of: (id, tokens) pairs; None: of its own."""

    input_tokens: int
    output_tokens: int
    blocks: tuple[tuple[int, int], ...] | None = None


def make_workload(scenario: Scenario, point: Point, rows: Sequence[TraceRow], salt: str) -> Workload:
    """Return the workload of one run.

    Args:
        scenario: what is measured.
        point: of its sweep.
        rows: of its trace; empty without one.
        salt: names the run; runs with different salts have different words.

    Raises:
        ScenarioError: the trace has too few rows.
    """
    warm_up = _warm_up(scenario, point)
    measured = _measured(scenario, point, rows, warm_up)
    count = warm_up + measured
    if scenario.trace is None:
        shapes = _drawn(scenario, point, count)
    else:
        if len(rows) < count:
            raise ScenarioError(
                f"the trace has {len(rows)} rows for {measured} requests and {warm_up} of warm-up: ask for "
                "fewer requests, or raise trace.limit"
            )
        shapes = [_scaled(row, scenario.trace.divide_lengths_by) for row in rows[:count]]
    kept = shapes[warm_up:]
    return Workload(
        prompts=_prompts(shapes, salt),
        warm_up=warm_up,
        load=_load(scenario, point, rows, count),
        input_tokens=sum(shape.input_tokens for shape in kept) / measured,
        output_tokens=sum(shape.output_tokens for shape in kept) / measured,
    )


def distinct_prompts(count: int, input_tokens: int, output_tokens: int, salt: str) -> tuple[Prompt, ...]:
    """Return prompts of one length that differ from their first word on; other salts have other words."""
    return _prompts([_Shape(input_tokens, output_tokens)] * count, salt)


def _warm_up(scenario: Scenario, point: Point) -> int:
    if scenario.warm_up is not None:
        return scenario.warm_up
    return point.concurrency or _WARM_UP_OPEN


def _measured(scenario: Scenario, point: Point, rows: Sequence[TraceRow], warm_up: int) -> int:
    if scenario.requests is not None:
        return scenario.requests
    if scenario.requests_per_stream is not None and point.concurrency is not None:
        return scenario.requests_per_stream * point.concurrency
    if len(rows) <= warm_up:
        raise ScenarioError(f"the trace has {len(rows)} rows, and {warm_up} requests only warm up")
    return len(rows) - warm_up


def _load(scenario: Scenario, point: Point, rows: Sequence[TraceRow], count: int) -> Load:
    if point.concurrency is not None:
        return ClosedLoop(point.concurrency)
    if point.request_rate is not None:
        return OpenLoop(poisson_arrivals(count, point.request_rate, scenario.seed))
    arrivals = [row.arrival_ns for row in rows[:count]]
    return OpenLoop(replayed_arrivals(arrivals, point.stretch or 1.0))


def _drawn(scenario: Scenario, point: Point, count: int) -> list[_Shape]:
    lengths = scenario.lengths[point.lengths or 0]
    source = random.Random(f"{scenario.seed}|lengths|{lengths.label}")  # noqa: S311 (repeatable, not secret)
    return [_Shape(lengths.input.draw(source), lengths.output.draw(source)) for _ in range(count)]


def _scaled(row: TraceRow, divide_by: float) -> _Shape:
    """Make a request shorter, its blocks as much as the whole, so that shared prefixes shrink alike."""
    tokens = max(1, round(row.input_tokens / divide_by))
    output = max(1, round(row.output_tokens / divide_by))
    if row.blocks is None:
        return _Shape(tokens, output)
    edges = [round(MOONCAKE_BLOCK_TOKENS * place / divide_by) for place in range(len(row.blocks))] + [tokens]
    sizes = [max(0, end - start) for start, end in itertools.pairwise(edges)]
    return _Shape(tokens, output, tuple(zip(row.blocks, sizes, strict=True)))


def _prompts(shapes: Sequence[_Shape], salt: str) -> tuple[Prompt, ...]:
    source = random.Random(f"{salt}|words")  # noqa: S311
    start = source.randrange(len(VOCABULARY) ** _DISTINCT_WORDS)
    prompts = []
    for index, shape in enumerate(shapes):
        if shape.blocks is None:
            distinct = spelled(start + index, min(_DISTINCT_WORDS, shape.input_tokens))
            numbers = distinct + _words(source, shape.input_tokens - len(distinct))
        else:
            numbers = tuple(number for block, size in shape.blocks for number in _block(salt, block, size))
        prompts.append(Prompt(text_of(numbers), token_ids_of(numbers), shape.output_tokens))
    return tuple(prompts)


def _block(salt: str, block: int, size: int) -> tuple[int, ...]:
    """Return the first `size` words of a block: always the same for the same id."""
    return _words(random.Random(f"{salt}|block|{block}"), size)  # noqa: S311


def _words(source: random.Random, count: int) -> tuple[int, ...]:
    return tuple(source.choices(range(len(VOCABULARY)), k=count))
