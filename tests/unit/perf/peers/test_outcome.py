"""What a contest's rounds come to: ratios within a round, at the same load."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from naiad_perf.errors import PerfError
from naiad_perf.peers.outcome import as_json, outcome, outcome_table, peak_memory_mb, ratio_spread
from naiad_perf.records import Run, ServerFigures
from tests.harness.recorded_runs import FACTS, request, run_of


def rounds(subject: str, streams: int, seconds: Sequence[float], memory_mb: int | None = None) -> list[Run]:
    """Bursts of 100 tokens that last so long; the first token is there after a tenth of that."""
    server = ServerFigures(memory_bytes=None if memory_mb is None else memory_mb * 1_000_000)
    return [
        run_of(
            request(0, [(100 * lasts, 1), (1000 * lasts, 99)]),
            facts=replace(FACTS, subject=subject, concurrency=streams, repeat=number, server=server),
        )
        for number, lasts in enumerate(seconds)
    ]


# A machine that slows down to a quarter: speeds of ours 100, 50, 25; of theirs 80, 25, 25.
RUNS = [
    *rounds("ours", 8, [1, 2, 4], memory_mb=900),
    *rounds("theirs", 8, [1.25, 4, 4], memory_mb=300),
    *rounds("ours", 1, [10, 10, 10], memory_mb=500),
    *rounds("theirs", 1, [5, 5, 20], memory_mb=700),
    *rounds("theirs", 64, [2, 2, 2], memory_mb=None),
]


def test_ratios_are_of_one_round_and_one_load() -> None:
    found = {(result.subject, result.streams): result for result in outcome(RUNS[::-1], "ours")}
    ratio = found["theirs", 8].ours_over
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high, ratio.repeats) == pytest.approx((1.25, 1, 2, 3))
    ratio = found["theirs", 1].ours_over
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 2))
    assert found["ours", 8].ours_over is None
    speed = found["ours", 8].figures["tokens_per_s"]
    assert (speed.median, speed.low, speed.high) == pytest.approx((50, 25, 100))
    assert found["ours", 8].figures["ttft_ms_p50"].median == pytest.approx(200)


def test_a_load_that_we_did_not_have_is_compared_with_our_largest() -> None:
    (result,) = [result for result in outcome(RUNS, "ours") if result.streams == 64]
    assert result.ours_over is not None
    assert result.ours_over.median == pytest.approx(1), "50, 50, 50 against 100, 50, 25"
    assert result.ours_over.high == pytest.approx(2)


def test_without_us_nothing_is_compared() -> None:
    assert [result.ours_over for result in outcome(rounds("theirs", 8, [1, 2]), "ours")] == [None]


def test_a_missing_round_is_an_error() -> None:
    with pytest.raises(PerfError, match="3 rounds cannot be compared with 2"):
        outcome(RUNS[:5], "ours")
    with pytest.raises(PerfError, match="without a token"):
        ratio_spread([], [])


def test_memory_is_the_highest_peak_of_all() -> None:
    assert peak_memory_mb(RUNS) == {"ours": 900, "theirs": 700}


def test_table_and_json_say_what_was_found() -> None:
    results = outcome(RUNS, "ours")
    memory_mb = peak_memory_mb(RUNS)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(outcome_table(results, {"ours": "Us", "theirs": "Them"}, memory_mb, "ours"))
    lines = [line.split() for line in console.export_text().splitlines() if line.strip()]
    heading = [word for line in lines[:2] for word in line]
    assert {"streams", "engine", "tokens/s", "Us", "over", "it", "memory", "MB"} <= set(heading)
    assert ["8", "Us", "50.0", "(25.0", "to", "100)", "200", "200", "900"] in lines
    assert [
        "Them",
        "25.0",
        "(25.0",
        "to",
        "80.0)",
        "400",
        "400",
        "1.25",
        "(1.00",
        "to",
        "2.00)",
        "700",
    ] in lines
    rows = {(row["subject"], row["streams"]): row for row in as_json(results, memory_mb)}
    assert rows["theirs", 8]["ours_over_it"] == {
        "median": pytest.approx(1.25), "lowest": pytest.approx(1), "highest": pytest.approx(2), "rounds": 3
    }  # fmt: skip
    assert rows["ours", 8]["ours_over_it"] is None
    assert rows["ours", 1]["peak_memory_mb"] == 900
    assert rows["ours", 1]["tokens_per_s"]["median"] == pytest.approx(10)
