"""The comparison's arithmetic and its text: known figures in, known ratios out. No server, no engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from naiad_perf.batching import BatchingResult, Sample, measure, summary, table

Entry = tuple[str, tuple[str, ...], int]  # engine, prompts, tokens

# Three rounds on a machine that slows down to half: speeds move, ratios of one round hardly do.
ROUNDS = BatchingResult(
    one=[Sample(40, 0.050), Sample(30, 0.070), Sample(20, 0.090)],
    many=[Sample(400, 1.0), Sample(330, 2.0), Sample(180, 3.0)],
    bare_one=[Sample(50, 0.010), Sample(24, 0.030), Sample(25, 0.020)],
    bare_many=[Sample(500, 4.0), Sample(300, 5.0), Sample(200, 6.0)],
)


def backwards(result: BatchingResult) -> BatchingResult:
    return BatchingResult(result.one[::-1], result.many[::-1], result.bare_one[::-1], result.bare_many[::-1])


def test_speeds_and_times_to_the_first_token_are_medians_over_the_rounds() -> None:
    figures = summary(ROUNDS, 32)
    assert figures["streams"] == 32
    assert figures["served_1_tokens_per_s"] == 30
    assert figures["served_n_tokens_per_s"] == 330
    assert figures["bare_1_tokens_per_s"] == 25
    assert figures["bare_n_tokens_per_s"] == 300
    assert figures["served_1_ttft_ms"] == pytest.approx(70)
    assert figures["bare_1_ttft_ms"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("name", "lowest", "median", "highest"),
    [
        ("n_over_1", 9, 10, 11),
        ("served_over_bare_n", 0.8, 0.9, 1.1),  # the medians' own ratio would be 1.1
        ("served_over_bare_1", 0.8, 0.8, 1.25),  # and here 1.2
    ],
)
def test_a_ratio_is_taken_within_each_round(name: str, lowest: float, median: float, highest: float) -> None:
    for result in (ROUNDS, backwards(ROUNDS)):
        figures = summary(result, 32)
        assert figures[name] == pytest.approx(median)
        assert figures[f"{name}_min"] == pytest.approx(lowest)
        assert figures[f"{name}_max"] == pytest.approx(highest)


def test_one_round_is_its_own_median() -> None:
    result = BatchingResult([Sample(20, 0.1)], [Sample(100, 1)], [Sample(25, 0.2)], [Sample(125, 1)])
    figures = summary(result, 8)
    for name, value in (("n_over_1", 5), ("served_over_bare_n", 0.8), ("served_over_bare_1", 0.8)):
        assert figures[name] == figures[f"{name}_min"] == figures[f"{name}_max"] == pytest.approx(value)


def test_a_round_that_lacks_a_sample_is_an_error_not_a_shorter_list() -> None:
    uneven = BatchingResult([Sample(1, 1)] * 2, [Sample(1, 1)], [Sample(1, 1)] * 2, [Sample(1, 1)] * 2)
    with pytest.raises(ValueError):
        summary(uneven, 2)


def test_the_table_says_every_figure_where_it_belongs() -> None:
    heading, served, bare, *rest = table(summary(ROUNDS, 32), 3).splitlines()
    assert heading.split() == ["tokens/s", "1", "stream", "32", "streams", "TTFT,", "1", "stream"]
    assert served.split() == ["served", "30.0", "330.0", "70", "ms"]
    assert bare.split() == ["bare", "engine", "25.0", "300.0", "20", "ms"]
    text = " ".join(rest)
    assert "32 streams over 1 stream: 10.00 (9.00 to 11.00)" in text
    assert "served over bare engine: 0.90 (0.80 to 1.10) at 32 streams, 0.80 (0.80 to 1.25) at 1" in text
    assert "3 rounds" in text
    assert len(heading) == len(served) == len(bare), "the columns end together"


@dataclass
class Engine:
    """Counts its bursts by their speeds, tells their streams by TTFT, and notes in a book what was asked."""

    name: str
    book: list[Entry]
    given: int = 0

    def run(self, prompts: Sequence[str], tokens: int) -> Sample:
        self.book.append((self.name, tuple(prompts), tokens))
        self.given += 1
        return Sample(self.given, len(prompts))


@pytest.fixture
def book() -> list[Entry]:
    """Four streams, nine tokens, three counted rounds after the first."""
    written: list[Entry] = []
    served, bare = Engine("served", written), Engine("bare", written)
    measure(served.run, bare.run, streams=4, tokens=9, repeats=3, report=lambda _: None)
    return written


def test_the_first_round_is_not_counted_and_each_burst_is_kept_under_its_name() -> None:
    served, bare = Engine("served", []), Engine("bare", [])
    reports: list[str] = []
    result = measure(served.run, bare.run, streams=4, tokens=9, repeats=3, report=reports.append)
    kept = (result.one, result.many, result.bare_one, result.bare_many)
    assert [[sample.ttft_s for sample in samples] for samples in kept] == [[1] * 3, [4] * 3, [1] * 3, [4] * 3]
    for engine in (result.one + result.many, result.bare_one + result.bare_many):
        assert sorted(sample.tokens_per_s for sample in engine) == [3, 4, 5, 6, 7, 8]
    assert reports == ["warm-up round", "round 1 of 3", "round 2 of 3", "round 3 of 3"]


def test_both_engines_get_the_same_prompts_and_no_round_those_of_another(
    book: list[Entry],
) -> None:
    """Prompts seen before would be answered from the KV cache."""
    assert {tokens for _, _, tokens in book} == {9}
    served = {prompts for name, prompts, _ in book if name == "served"}
    assert served == {prompts for name, prompts, _ in book if name == "bare"}
    assert sorted(len(prompts) for prompts in served) == [1, 1, 1, 1, 4, 4, 4, 4]
    single = [prompt for prompts in served for prompt in prompts]
    assert len(set(single)) == len(single) == 20


def test_the_engines_take_turns_in_going_first(book: list[Entry]) -> None:
    first: dict[int, list[str]] = {1: [], 4: []}
    for round_start in range(0, len(book), 4):
        for size, names in first.items():
            names.append(
                next(name for name, prompts, _ in book[round_start : round_start + 4] if len(prompts) == size)
            )
    for names in first.values():
        assert all(name != after for name, after in pairwise(names))
