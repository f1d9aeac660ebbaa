"""Traces: both formats, plain and gzipped, and what is no trace."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from naiad_perf.errors import ScenarioError
from naiad_perf.workload.traces import TraceFormat, TraceRow, read_trace

MOONCAKE = [
    {"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [0, 1]},
    {"timestamp": 3000, "input_length": 512, "output_length": 1, "hash_ids": [0]},
    {"timestamp": 3000, "input_length": 1, "output_length": 7, "hash_ids": [9]},
]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "2023-11-16 18:16:00.0000001,879,55"
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | list[dict[str, object]]], Path]:
    def write(content: str | list[dict[str, object]]) -> Path:
        path = tmp_path / "trace"
        path.write_text(
            content if isinstance(content, str) else "\n".join(json.dumps(row) for row in content), "utf-8"
        )
        return path

    return write


def test_mooncake_rows(write):
    assert read_trace(write(MOONCAKE), TraceFormat.MOONCAKE) == [
        TraceRow(0, 600, 52, (0, 1)),
        TraceRow(3_000_000_000, 512, 1, (0,)),
        TraceRow(3_000_000_000, 1, 7, (9,)),
    ]


def test_azure_rows_keep_all_seven_digits(write):
    rows = read_trace(write(AZURE), TraceFormat.AZURE)
    first = rows[0].arrival_ns
    assert [row.arrival_ns - first for row in rows] == [0, 4_314_579_000, 13_319_410_100]
    assert [(row.input_tokens, row.output_tokens, row.blocks) for row in rows] == [
        (374, 44, None),
        (396, 109, None),
        (879, 55, None),
    ]


def test_gzip_is_known_by_its_content_not_its_name(write, tmp_path: Path):
    packed = tmp_path / "no_ending"
    packed.write_bytes(gzip.compress(AZURE.encode()))
    assert read_trace(packed, TraceFormat.AZURE) == read_trace(write(AZURE), TraceFormat.AZURE)


@pytest.mark.parametrize(
    ("offset", "limit", "inputs"), [(0, 2, [600, 512]), (1, None, [512, 1]), (2, 9, [1]), (0, 1, [600])]
)
def test_offset_and_limit_choose_rows(write, offset: int, limit: int | None, inputs: list[int]):
    rows = read_trace(write(MOONCAKE), TraceFormat.MOONCAKE, offset, limit)
    assert [row.input_tokens for row in rows] == inputs


def test_rows_behind_the_limit_are_not_even_looked_at(write):
    path = write([*MOONCAKE, {"nonsense": 1}])
    assert len(read_trace(path, TraceFormat.MOONCAKE, 0, 3)) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_length": 513, "hash_ids": [3]}, "513 tokens are 2 blocks, not 1"),
        ({"input_length": 0, "hash_ids": []}, "input_length is 0, below 1"),
        ({"output_length": 0}, "output_length is 0, below 1"),
        ({"timestamp": -1}, "timestamp is -1, below 0"),
        ({"hash_ids": None}, "not a mooncake trace"),
    ],
)
def test_a_wrong_row_is_refused_by_its_number(write, change: dict[str, object], said: str):
    with pytest.raises(ScenarioError, match=r"row 2: not a mooncake trace") as refused:
        read_trace(write([MOONCAKE[0], {**MOONCAKE[1], **change}]), TraceFormat.MOONCAKE)
    assert said in str(refused.value)


def test_one_format_is_not_taken_for_the_other(write):
    with pytest.raises(ScenarioError, match="row 1: not a mooncake trace"):
        read_trace(write(AZURE), TraceFormat.MOONCAKE)
    with pytest.raises(ScenarioError, match="row 1: not a azure trace: 'TIMESTAMP'"):
        read_trace(write(MOONCAKE), TraceFormat.AZURE)


def test_times_that_run_backwards_are_refused(write):
    with pytest.raises(ScenarioError, match="run backwards"):
        read_trace(write([MOONCAKE[1], MOONCAKE[0]]), TraceFormat.MOONCAKE)


def test_an_offset_behind_the_end_says_how_many_rows_there_are(write):
    with pytest.raises(ScenarioError, match="has 3 rows; none is left after offset 3"):
        read_trace(write(MOONCAKE), TraceFormat.MOONCAKE, 3)


def test_a_missing_file_says_where_the_data_comes_from(tmp_path: Path):
    with pytest.raises(ScenarioError, match=r"not readable.*kvcache-ai/Mooncake"):
        read_trace(tmp_path / "none", TraceFormat.MOONCAKE)


@pytest.mark.parametrize("cut", [30, -4])
def test_a_damaged_archive_is_refused(tmp_path: Path, cut: int):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(AZURE.encode())[:cut])
    with pytest.raises(ScenarioError, match="not readable"):
        read_trace(path, TraceFormat.AZURE)
