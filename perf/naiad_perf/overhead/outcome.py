"""What came out, as figures and as tables: speed by stage, processor time by part, the first token's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from naiad_perf.display import number
from naiad_perf.metrics import Slos, figures_of
from naiad_perf.overhead.measure import Measured
from naiad_perf.overhead.processes import PARTS
from naiad_perf.overhead.stations import STATIONS
from naiad_perf.records import Run

__all__ = ["outcome", "processor_table", "speed_table", "stations_table"]

_FIGURES = ("tokens_per_s", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "tokens_per_response")
_MS_PER_NS = 1e-6
_Figures = Mapping[str, float | None]


def outcome(found: Measured, stages: Sequence[str]) -> dict[str, Any]:
    """Return everything in JSON's types.

    ``stages`` has, by stage and streams, medians over the rounds and the tokens/s over those of the first
    stage, round by round (``ratio``, ``ratio_min``, ``ratio_max``), and over those of the fewest streams
    (``scaling``, ``scaling_min``, ``scaling_max``); ``processor_ms_per_token`` and
    ``stations_ms`` (medians over all requests) go by streams.
    """
    by_load: dict[tuple[str, int], list[Run]] = {}
    for run in sorted(found.runs, key=lambda run: run.facts.repeat):
        by_load.setdefault((run.facts.subject, run.facts.concurrency or 0), []).append(run)
    figures = {load: [figures_of(run, Slos()) for run in runs] for load, runs in by_load.items()}
    fewest = min(streams for _, streams in figures)
    rows = []
    for (stage, streams), rounds in figures.items():
        row: dict[str, Any] = {"stage": stage, "streams": streams, "rounds": len(rounds)}
        for name in _FIGURES:
            values = [value for one in rounds if (value := one.get(name)) is not None]
            row[name] = median(values) if values else None
        row |= _ratios("ratio", rounds, figures[stages[0], streams])
        row |= _ratios("scaling", rounds, figures[stage, fewest])
        rows.append(row)
    processor = []
    for (stage, streams), used in found.cpu_s.items():
        tokens = sum(record.output_tokens for run in by_load[stage, streams] for record in run.requests)
        per_token = {part: 1000 * used[part] / tokens for part in PARTS if part in used}
        processor.append({"stage": stage, "streams": streams, **per_token})
    stations = []
    for streams, ways in found.stations.items():
        stages_ms = zip(*(way.stages_ns for way in ways), strict=True)
        named = {name: median(values) * _MS_PER_NS for name, values in zip(STATIONS, stages_ms, strict=True)}
        ttft_ms = median(way.ttft_ns for way in ways) * _MS_PER_NS
        stations.append({"streams": streams, "requests": len(ways), **named, "TTFT": ttft_ms})
    return {"stages": rows, "processor_ms_per_token": processor, "stations_ms": stations}


def _ratios(name: str, rounds: Sequence[_Figures], below: Sequence[_Figures]) -> dict[str, float]:
    """Return the median of the tokens/s of one over the other, round by round, with lowest and highest."""
    pairs = zip(rounds, below, strict=True)
    ratios = [(one["tokens_per_s"] or 0) / (other["tokens_per_s"] or 1) for one, other in pairs]
    return {name: median(ratios), f"{name}_min": min(ratios), f"{name}_max": max(ratios)}


def speed_table(rows: Sequence[Mapping[str, Any]], stages: Sequence[str]) -> Table:
    """Tokens/s and latencies of each stage."""
    table = Table("streams", "stage", title="Speed by stage")
    fewest = min(row["streams"] for row in rows)
    ratios = f"over {stages[0]}", f"over {fewest} stream{'s' if fewest > 1 else ''}"
    for header in ("tokens/s", *ratios, "TTFT p50 ms", "p99", "TPOT p50 ms", "tokens/response"):
        table.add_column(header, justify="right")
    for row in sorted(rows, key=lambda row: (row["streams"], stages.index(row["stage"]))):
        table.add_row(
            str(row["streams"]),
            row["stage"],
            number(row["tokens_per_s"]),
            "" if row["stage"] == stages[0] else _spread(row, "ratio"),
            "" if row["streams"] == fewest else _spread(row, "scaling"),
            *(number(row[name]) for name in _FIGURES[1:]),
            end_section=row["stage"] == stages[-1],
        )
    return table


def _spread(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f} ({row[f'{name}_min']:.2f}-{row[f'{name}_max']:.2f})"


def processor_table(rows: Sequence[Mapping[str, Any]], stages: Sequence[str]) -> Table:
    """Processor time a token of each part."""
    table = Table("streams", "stage", title="Processor time a token, in ms")
    parts = [part for part in PARTS if any(part in row for row in rows)]
    for part in (*parts, "all but the engine"):
        table.add_column(part, justify="right")
    for row in sorted(rows, key=lambda row: (row["streams"], stages.index(row["stage"]))):
        rest = sum(row.get(part, 0.0) for part in parts if part != "engine")
        table.add_row(
            str(row["streams"]),
            row["stage"],
            *(f"{row[part]:.3f}" if part in row else "" for part in parts),
            f"{rest:.3f}",
            end_section=row["stage"] == stages[-1],
        )
    return table


def stations_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The first token's way through the text model."""
    table = Table("streams", "requests", title="The first token's way through tensorrt_llm_bls, median ms")
    for name in (*STATIONS, "TTFT"):
        table.add_column(name, justify="right")
    for row in sorted(rows, key=lambda row: row["streams"]):
        table.add_row(
            str(row["streams"]), str(row["requests"]), *(number(row[name]) for name in (*STATIONS, "TTFT"))
        )
    return table
