"""What happened when, request by request, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from naiad_perf.records import Outcome, RequestRecord, Run
from naiad_perf.report.chart import Table

__all__ = ["MOST_SHOWN", "Timeline", "timeline_of"]

MOST_SHOWN = 250
_BINS = 120
_NS_PER_S = 1_000_000_000
_REQUEST_COLUMNS = ("row", "request", "due", "sent", "first", "end", "tokens", "outcome", "warm_up")
_RATE_COLUMNS = ("from", "to", "tokens_per_s", "in_flight")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Data of one run's timeline; times in seconds from the first intended send, warm-up included.

    Attributes:
        requests: those shown. `first` is the end where no token came; `outcome` has the error behind it.
        rates: `tokens_per_s` and mean requests `in_flight` in equal stretches of the run, of all requests.
        total: requests there are.
    """

    requests: Table
    rates: Table
    total: int


def timeline_of(run: Run) -> Timeline:
    """Return the timeline of a run.

    Of many requests, evenly spread ones are shown: at most `MOST_SHOWN` that succeeded, and as many others.
    """
    records = sorted(run.requests, key=lambda record: (record.intended_ns, record.index))
    if not records:
        return Timeline(Table(_REQUEST_COLUMNS, []), Table(_RATE_COLUMNS, []), 0)
    zero = records[0].intended_ns
    rows = [_row(row, record, zero) for row, record in enumerate(_sample(records))]
    return Timeline(Table(_REQUEST_COLUMNS, rows), Table(_RATE_COLUMNS, _rates(records, zero)), len(records))


def _sample(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    good = _spread([record for record in records if record.outcome is Outcome.OK])
    others = _spread([record for record in records if record.outcome is not Outcome.OK])
    return sorted([*good, *others], key=lambda record: (record.intended_ns, record.index))


def _spread(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Return at most `MOST_SHOWN` of them, evenly spread, the first and the last among them."""
    if len(records) <= MOST_SHOWN:
        return list(records)
    step = (len(records) - 1) / (MOST_SHOWN - 1)
    return [records[round(number * step)] for number in range(MOST_SHOWN)]


def _row(row: int, record: RequestRecord, zero: int) -> list[str | float | bool | None]:
    first_ns = record.response_ns[0] if record.response_ns else _end_ns(record)
    times = (record.intended_ns, record.sent_ns, first_ns, _end_ns(record))
    outcome = f"{record.outcome.value}: {record.error[:120]}" if record.error else record.outcome.value
    seconds = [round((time_ns - zero) / _NS_PER_S, 5) for time_ns in times]
    return [row, record.index, *seconds, record.output_tokens, outcome, record.warm_up]


def _end_ns(record: RequestRecord) -> int:
    if record.ended_ns is not None:
        return record.ended_ns
    return record.response_ns[-1] if record.response_ns else record.sent_ns


def _rates(records: Sequence[RequestRecord], zero: int) -> list[list[str | float | bool | None]]:
    span = max(_end_ns(record) for record in records) - zero
    if span == 0:
        return []
    width = span / _BINS
    tokens, flight = [0.0] * _BINS, [0.0] * _BINS
    for record in records:
        _add(flight, (record.sent_ns - zero) / width, (_end_ns(record) - zero) / width, rate=1)
        if record.response_ns:
            tokens[min(int((record.response_ns[0] - zero) / width), _BINS - 1)] += record.response_tokens[0]
        gaps = zip(pairwise(record.response_ns), record.response_tokens[1:], strict=False)
        for (before, now), count in gaps:  # spread evenly over their gap, as in inter-token latency
            start, end = (before - zero) / width, (now - zero) / width
            if end == start:
                tokens[min(int(end), _BINS - 1)] += count
            else:
                _add(tokens, start, end, rate=count / (end - start))
    seconds = width / _NS_PER_S
    return [
        [
            round(n * seconds, 5),
            round((n + 1) * seconds, 5),
            round(tokens[n] / seconds, 2),
            round(flight[n], 3),
        ]
        for n in range(_BINS)
    ]


def _add(stretches: list[float], start: float, end: float, *, rate: float) -> None:
    """Add `rate` for the part of each stretch that lies from `start` to `end`, which count stretches."""
    for number in range(int(start), min(int(end), _BINS - 1) + 1):
        stretches[number] += rate * max(0.0, min(end, number + 1) - max(start, number))
