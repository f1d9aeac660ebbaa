"""What the report says in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from naiad_perf.display import DASH, number
from naiad_perf.metrics import METRICS, Promise, Slos
from naiad_perf.report import overview
from naiad_perf.report.rows import load_label, workload_label
from naiad_perf.results import RunResult, result_of, summarise
from tests.harness.recorded_runs import FACTS, failed, request, run_of

ANSWERS = tuple(request(10 * n, [(10 * n + 5, 1), (10 * n + 9, 1)]) for n in range(100))


def results(*, repeats: int = 3, requests=ANSWERS, **facts) -> list[RunResult]:
    return [
        result_of(run_of(*requests, facts=replace(FACTS, repeat=n, position=n, **facts)), Slos())
        for n in range(repeats)
    ]


def doubts(runs: list[RunResult], budget: float | None = None) -> str:
    return "\n".join(overview.doubts(summarise(runs), Promise(Slos(), budget)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, DASH),
        (0, "0"),
        (0.0123, "0.012"),
        (0.1, "0.10"),
        (1.234, "1.23"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-3.2, "-3.20"),
    ],
)
def test_numbers_have_the_digits_that_matter(value, text):
    assert number(value) == text


def test_a_sweep_without_reason_to_doubt_has_no_doubts():
    assert doubts(results(client_cpu_s=0.1)) == ""


def test_few_repeats_few_requests_busy_clients_and_retries_are_doubts():
    assert "only once" in doubts(results(repeats=1))
    assert "only 2 times" in doubts(results(repeats=2))
    assert "as few as 7 requests" in doubts(results(requests=ANSWERS[:7]))
    assert "up to 80 %" in doubts(results(client_cpu_s=16.0))
    assert "3 of 3 runs were started more than once" in doubts(results(attempts=2))


def test_repeats_that_differ_much_are_a_doubt_with_the_point_named():
    def taking(*took_ms: float) -> list[RunResult]:
        facts = [replace(FACTS, repeat=n, client_cpu_s=0.1) for n in range(len(took_ms))]
        answers = ([request(0, [(ms, 1)])] * 100 for ms in took_ms)
        return [
            result_of(run_of(*each, facts=fact), Slos()) for each, fact in zip(answers, facts, strict=True)
        ]

    assert "up to 1.6 times (bls at c2-i8-o16)" in doubts(taking(100, 130, 160))
    assert doubts(taking(100, 120, 150)) == ""


def test_different_load_generators_and_uneven_repeats_are_doubts():
    mixed = [*results(driver="locust"), *results(repeats=4, subject="other")]
    assert "by hand 1, locust 1" in doubts(mixed)
    assert "from 3 to 4" in doubts(mixed)


def test_an_exceeded_error_budget_comes_first_with_the_runs_named():
    found = overview.doubts(
        summarise(results(requests=(*ANSWERS[:9], failed(0, 1)), repeats=6)), Promise(Slos(), 0.05)
    )
    assert found[0].startswith("The error budget was exceeded")
    assert "repeat 0: 1 of 10 requests failed (10 %)" in found[0]
    assert found[0].endswith("and in 2 more.")


def test_tiles_show_each_subject_at_its_best_and_the_failures():
    slow = results(subject="slow", point="c1", concurrency=1)
    fast = results(subject="fast", point="c1", requests=ANSWERS[:10])
    tiles = overview.tiles(summarise([*slow, *fast]), Promise(Slos(), 0.01))
    assert [(tile.label, tile.unit) for tile in tiles] == [
        ("slow, most", "tokens/s"),
        ("fast, most", "tokens/s"),
        ("Failed requests", "%"),
    ]
    assert tiles[0].value == number(200 / 0.999)
    assert tiles[0].below == "at 1 stream, TTFT p50 5.00 ms"
    assert (tiles[-1].value, tiles[-1].below) == ("0", "0 of 330; budget of 1 % kept")


def test_a_tile_is_of_the_point_with_most_tokens_a_second():
    few = results(point="c1", concurrency=1, requests=[request(0, [(100, 1)])])
    many = results(point="c9", concurrency=9, requests=[request(0, [(100, 9)])])
    some = results(point="c5", concurrency=5, requests=[request(0, [(100, 5)])])
    tile, _ = overview.tiles(summarise([*few, *many, *some]), Promise())
    assert (tile.value, tile.below) == ("90.0", "at 9 streams, TTFT p50 100 ms")


def test_a_tile_of_nothing_is_a_dash():
    tile, failures = overview.tiles(summarise(results(requests=(failed(0, 0),))), Promise())
    assert (tile.value, tile.below) == (DASH, "no request succeeded")
    tile, _ = overview.tiles(summarise(results(requests=(failed(0, 1),))), Promise())
    assert (tile.value, tile.below) == ("0", "no request succeeded")
    assert (failures.value, failures.below) == ("100", "3 of 3; no error budget is stated")


def test_the_table_has_dashes_for_what_is_undefined_and_sorts_it_last():
    (row,) = overview.table(summarise(results()))
    cells = dict(zip((head.name for head in overview.table_head()), row.cells, strict=True))
    assert (cells["Goodput share"].shown, cells["Goodput share"].key) == (DASH, "")
    assert cells["TTFT p50"].shown == "5.00"
    assert cells["TTFT p50"].spread == ""  # all repeats agree
    assert float(cells["TTFT p50"].key) == 5
    assert cells["Error rate"].shown == "0"


def test_the_table_shows_the_spread_over_repeats():
    runs = [
        result_of(run_of(request(0, [(ms, 1)]), facts=replace(FACTS, repeat=n)), Slos())
        for n, ms in enumerate((30, 10, 20))
    ]
    (row,) = overview.table(summarise(runs))
    cells = dict(zip((head.name for head in overview.table_head()), row.cells, strict=True))
    assert (cells["TTFT p50"].shown, cells["TTFT p50"].spread) == ("20.0", "10.0–30.0")


def test_promises_are_stated_or_dashes():
    said = {fact.name: fact.text for fact in overview.promises(Promise(Slos(ttft_ms=500), 0.01))}
    assert said == {
        "TTFT": "at most 500 ms",
        "TPOT": DASH,
        "Latency": DASH,
        "Error budget": "1 % of the requests of a run",
    }


def test_the_environment_is_said_once_and_by_subject_where_it_differs():
    one = results(subject="a", environment={"python": "3.11", "cpu": "x"})
    other = results(subject="b", environment={"python": "3.11", "cpu": "y"}, hourly_price_usd=None)
    said = {fact.name: fact.text for fact in overview.environment([*one, *other])}
    assert said["python"] == "3.11"
    assert said["cpu"] == "x (a); y (b)"
    assert said["hourly price, USD"] == "3.6 (a); – (b)"
    assert said["load generator"] == "by hand 1"


def test_commands_are_those_that_were_started_and_can_be_pasted():
    command = ("perf_analyzer", "-m", "a model", "--input", "x y.json")
    (fact,) = overview.commands(results(repeats=1, command=command))
    assert fact.text == "perf_analyzer -m 'a model' --input 'x y.json'"
    assert fact.name == "bls, c2-i8-o16, repeat 0"


def test_every_metric_is_defined():
    assert len(overview.definitions()) == len(METRICS)
    ttft = next(fact for fact in overview.definitions() if fact.name == "TTFT")
    assert ttft.note == "ttft_ms, ms"
    assert "response_ns[0] - intended_ns" in ttft.text


def test_loads_and_workloads_are_written_for_people():
    assert load_label(replace(FACTS, concurrency=1)) == "1 stream"
    assert load_label(FACTS) == "2 streams"
    assert load_label(replace(FACTS, concurrency=None, request_rate=2.5)) == "2.5 requests/s"
    assert load_label(replace(FACTS, concurrency=None)) == DASH
    assert workload_label(FACTS) == "8 → 16 tokens"
