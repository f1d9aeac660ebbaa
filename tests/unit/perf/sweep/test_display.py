"""What a sweep shows: lines without a terminal, a bar on one, and the table at its end."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from naiad_perf.metrics import Slos
from naiad_perf.records import Run
from naiad_perf.results import result_of, summarise
from naiad_perf.sweep.display import SweepDisplay, results_table
from naiad_perf.sweep.plan import PlannedRun, Point
from naiad_perf.workload.scenario import Subject
from tests.harness.recorded_runs import FACTS, failed, request, run_of

SUBJECT = Subject(name="bls", profile="cpu")


def planned(position: int, point: str = "c1", repeat: int = 0) -> PlannedRun:
    return PlannedRun(SUBJECT, Point(point, concurrency=1), repeat, position)


def shown(run: Run | None = None, *, terminal: bool = False) -> tuple[SweepDisplay, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, color_system=None)
    return SweepDisplay(console, Slos()), out


ANSWERED = run_of(request(0, [(100, 1), (200, 3)]), request(200, [(300, 2), (400, 2)]))


def test_without_a_terminal_every_run_is_a_line_with_what_it_gave():
    display, out = shown()
    runs = [planned(0), planned(1, "c8"), planned(2, "c8", 1)]
    with display:
        display.begin(runs, 0)
        display.running(runs[0], 1)
        display.done(runs[0], ANSWERED, 30.0)
        display.running(runs[1], 1)
        display.done(runs[1], ANSWERED, 90.0)
    lines = out.getvalue().splitlines()
    # 8 tokens in 0.4 s; with 30 s for the first run two like it are left, then one like the second's 90 s.
    assert lines == [
        "run 1: c1 bls, repeat 1: 20.0 tokens/s, TTFT 100 ms; 1:00 left",
        "run 2: c8 bls, repeat 1: 20.0 tokens/s, TTFT 100 ms; 1:30 left",
    ]


def test_errors_are_in_the_line():
    display, out = shown()
    with display:
        display.begin([planned(0)], 0)
        display.running(planned(0), 1)
        display.done(planned(0), run_of(request(0, [(100, 1)]), failed(5, 9), failed(6, 9)), 1.0)
    assert "2 errors" in out.getvalue()


def test_runs_finished_before_are_counted_and_not_waited_for():
    display, out = shown()
    runs = [planned(number, repeat=number) for number in range(4)]
    with display:
        display.begin(runs, 2)
        display.running(runs[2], 1)
        display.done(runs[2], ANSWERED, 10.0)
    assert "2 of 4 runs are finished already" in out.getvalue()
    assert "run 3: c1 bls, repeat 3: 20.0 tokens/s, TTFT 100 ms; 0:10 left" in out.getvalue()


def test_a_long_rest_is_told_in_minutes():
    display, out = shown()
    runs = [planned(number) for number in range(3)]
    with display:
        display.begin(runs, 0)
        display.running(runs[0], 1)
        display.done(runs[0], ANSWERED, 3000.0)
    assert "; 100 min left" in out.getvalue()


def test_a_terminal_has_a_bar_with_what_runs_and_what_the_last_one_gave():
    display, out = shown(terminal=True)
    runs = [planned(0), planned(1, "c8")]
    with display:
        display.begin(runs, 0)
        display.running(runs[0], 1)
        display.done(runs[0], ANSWERED, 60.0)
        display.running(runs[1], 2)
        display.tell("something happened")
    text = out.getvalue()
    assert "1/2" in text
    assert "c8 bls, repeat 1, attempt 2" in text
    assert "last: 20.0 tokens/s, TTFT 100 ms" in text
    assert "1:00 left" in text
    assert "something happened" in text
    assert "run 1:" not in text


def test_a_run_that_was_given_up_counts_as_over():
    display, out = shown(terminal=True)
    runs = [planned(0), planned(1)]
    with display:
        display.begin(runs, 0)
        display.running(runs[0], 3)
        display.given_up(runs[0])
    assert "1/2" in out.getvalue()
    assert "c1__bls__000 failed" in out.getvalue()


def table(*runs: Run) -> list[list[str]]:
    out = io.StringIO()
    results = [result_of(run, Slos()) for run in runs]
    Console(file=out, width=200).print(results_table(summarise(results)))
    return [line.split() for line in out.getvalue().splitlines()]


def repeated(number: int, latency_ms: float) -> Run:
    run = run_of(request(0, [(latency_ms, 2), (2 * latency_ms, 2)]))
    facts = replace(FACTS, repeat=number, position=number, point="c1", hourly_price_usd=None)
    return replace(run, facts=facts)


def test_the_table_has_the_median_of_the_repeats_and_how_far_they_lie_apart():
    head, units, row = table(repeated(0, 100), repeated(1, 400), repeated(2, 200))
    assert head[:4] == ["Tokens/s", "TTFT", "p50", "TTFT"]
    assert units[:3] == ["point", "subject", "runs"]
    # 4 tokens in 0.2, 0.8 and 0.4 s: 20, 5 and 10 a second, so 10, and half of 15 is 75 % of it.
    assert row[:5] == ["c1", "bls", "3", "10.0", "±75%"]
    assert row[5:7] == ["200", "±75%"]


def test_one_repeat_has_no_spread():
    *_, row = table(repeated(0, 100))
    assert row[:5] == ["c1", "bls", "1", "20.0", "100"]


def test_errors_are_a_column_only_when_there_are_some():
    _, with_errors, *_ = table(run_of(request(0, [(1, 1)]), failed(2, 3)))
    _, without, *_ = table(repeated(0, 1))
    assert "Errors" in with_errors
    assert "Errors" not in without


def test_what_is_undefined_is_a_dash():
    one_response = run_of(request(0, [(100, 4)]))
    rows = table(replace(one_response, facts=replace(FACTS, point="c9", position=9)), repeated(0, 100))
    assert "–" in rows[-1]
