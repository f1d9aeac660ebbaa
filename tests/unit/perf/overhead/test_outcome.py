"""What a round is divided by, what a token costs, and how long each station took, worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from naiad_perf.overhead.measure import BARE, TEXT_MODEL, Measured
from naiad_perf.overhead.outcome import outcome, processor_table, speed_table, stations_table
from naiad_perf.overhead.stations import STATIONS, Stations
from naiad_perf.records import RequestRecord, Run, RunFacts

SECOND, MS = 1_000_000_000, 1_000_000
FACTS = RunFacts(
    subject="", point="c2-i8-o4", repeat=0, driver="d", driver_version="1", model="m", profile="cpu",
    concurrency=2, request_rate=None, input_tokens=8, output_tokens=4, started_utc="", position=0, command=(),
    wall_s=1.0, client_cpu_s=None, cores=2,
)  # fmt: skip


def run(stage: str, repeat: int, seconds: float, streams: int = 2) -> Run:
    """Two answers of four tokens each; the first token after half of the time, the last at its end."""
    half, whole = round(seconds * SECOND / 2), round(seconds * SECOND)
    records = tuple(RequestRecord(index, 0, 0, (half, whole), (1, 3), whole) for index in range(streams))
    facts = dataclasses.replace(FACTS, subject=stage, repeat=repeat, concurrency=streams)
    return Run(facts, records)


@pytest.fixture
def found() -> Measured:
    runs = [run(TEXT_MODEL, 1, 4.0), run(BARE, 0, 1.0), run(TEXT_MODEL, 0, 2.0), run(BARE, 1, 1.0)]
    return Measured(
        runs=runs,
        cpu_s={(BARE, 2): {"engine": 0.8}, (TEXT_MODEL, 2): {"engine": 1.6, "client": 0.16}},
        stations={
            2: [Stations((1_000_000, 2_000_000, 3_000_000, 4_000_000)), Stations((3_000_000, 0, 0, 0))]
        },
    )


def test_ratios_are_taken_round_by_round_over_the_first_stage(found: Measured) -> None:
    rows = {row["stage"]: row for row in outcome(found, (BARE, TEXT_MODEL))["stages"]}
    assert rows[BARE]["tokens_per_s"] == pytest.approx(8.0)
    assert rows[BARE]["ratio"] == rows[BARE]["ratio_min"] == 1.0
    assert rows[TEXT_MODEL]["tokens_per_s"] == pytest.approx(3.0)  # of 4 and 2
    assert (rows[TEXT_MODEL]["ratio_min"], rows[TEXT_MODEL]["ratio_max"]) == pytest.approx((0.25, 0.5))
    assert rows[TEXT_MODEL]["ttft_ms_p50"] == pytest.approx(1500.0)
    assert rows[TEXT_MODEL]["tokens_per_response"] == pytest.approx(2.0)


def test_scaling_is_taken_round_by_round_over_the_fewest_streams() -> None:
    runs = [run(BARE, 0, 1.0, streams=2), run(BARE, 1, 2.0, streams=2)]
    runs += [run(BARE, 0, 1.0, streams=8), run(BARE, 1, 1.0, streams=8)]
    few, many = outcome(Measured(runs=runs, cpu_s={}, stations={}), (BARE,))["stages"]
    assert (few["streams"], few["scaling_min"], few["scaling_max"]) == (2, 1.0, 1.0)
    assert (many["scaling_min"], many["scaling"], many["scaling_max"]) == pytest.approx((4.0, 6.0, 8.0))


def test_processor_time_is_that_of_a_token(found: Measured) -> None:
    rows = {row["stage"]: row for row in outcome(found, (BARE, TEXT_MODEL))["processor_ms_per_token"]}
    assert rows[BARE]["engine"] == pytest.approx(50.0)  # 0.8 s for 16 tokens
    assert (rows[TEXT_MODEL]["engine"], rows[TEXT_MODEL]["client"]) == pytest.approx((100.0, 10.0))
    assert "client" not in rows[BARE]


def test_stations_are_medians_over_requests(found: Measured) -> None:
    (row,) = outcome(found, (BARE, TEXT_MODEL))["stations_ms"]
    assert [row[name] for name in STATIONS] == pytest.approx([2.0, 1.0, 1.5, 2.0])
    assert row["TTFT"] == pytest.approx(6.5)
    assert row["requests"] == 2


def test_the_tables_hold_every_stage_and_part(found: Measured) -> None:
    rows = outcome(found, (BARE, TEXT_MODEL))
    speed = speed_table(rows["stages"], (BARE, TEXT_MODEL))
    assert speed.row_count == 2
    processor = processor_table(rows["processor_ms_per_token"], (BARE, TEXT_MODEL))
    assert [str(column.header) for column in processor.columns][2:] == [
        "client",
        "engine",
        "all but the engine",
    ]
    assert stations_table(rows["stations_ms"]).row_count == 1
