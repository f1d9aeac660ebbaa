from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.contract.errors import InvalidArgument
from naiad.tokenization import StopMatcher, StopResult

FEW = st.text(alphabet="ab你", max_size=40)
STOPS = st.lists(st.text(alphabet="ab你", max_size=5), max_size=5)


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text up to the stop that is complete first (of several at once, the longest), and that stop."""
    found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return text, None
    end, _, stop = min(found)
    return text[: end - len(stop)], stop


def run(stops: list[str], chunks: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    released = []
    for chunk in chunks:
        result = matcher.push(chunk)
        released.append(result.text)
        if result.stopped:
            return released, result.stop
    return [*released, matcher.flush()], None


def chunked(text: str, sizes: list[int]) -> list[str]:
    chunks, start, turn = [], 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        chunks.append(text[start : start + size])
        start, turn = start + size, turn + 1
    return chunks


@settings(max_examples=250, deadline=None)
@given(text=FEW, stops=STOPS, sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_text_is_cut_where_a_search_of_the_whole_text_cuts_it(text, stops, sizes):
    released, stop = run(stops, chunked(text, sizes))
    assert ("".join(released), stop) == expected(text, stops)


@settings(max_examples=100, deadline=None)
@given(text=FEW, stops=STOPS)
def test_as_much_as_possible_is_released_after_each_character(text, stops):
    matcher = StopMatcher(stops)
    sent = ""
    for count, char in enumerate(text, 1):
        result = matcher.push(char)
        sent += result.text
        if result.stopped:
            break
        seen = text[:count]
        held = max(
            (n for stop in stops for n in range(1, len(stop)) if seen.endswith(stop[:n])),
            default=0,
        )
        assert sent == seen[: len(seen) - held]


def test_a_stop_across_chunks_leaks_nothing():
    assert run(["<|end|>"], ["hello <|", "en", "d|", "> more"]) == (["hello ", "", "", ""], "<|end|>")


def test_what_only_looked_like_a_stop_is_released():
    assert run(["\n\nUser:"], ["a\n", "\nUs", "e the"]) == (["a", "", "\n\nUse the", ""], None)


def test_held_text_comes_out_at_the_end():
    assert run(["STOP"], ["go ST"]) == (["go ", "ST"], None)


@pytest.mark.parametrize(
    ("stops", "text", "kept", "stop"),
    [
        (["abcd", "bc"], "xabce", "xa", "bc"),
        (["ab", "abab"], "xabab", "x", "ab"),
        (["b", "ab", "aab"], "caab", "c", "aab"),
        (["aab"], "aaaab", "aa", "aab"),
        (["", "x"], "axb", "a", "x"),
        (["👨‍👩‍👧"], "a👨‍👩‍👧b", "a", "👨‍👩‍👧"),
        (["abcabd"], "abcabcabd", "abc", "abcabd"),
    ],
)
def test_overlapping_stops(stops, text, kept, stop):
    for sizes in ([1], [2], [3], [100]):
        released, met = run(stops, chunked(text, sizes))
        assert ("".join(released), met) == (kept, stop)


def test_after_a_stop_everything_is_discarded():
    matcher = StopMatcher(["x"])
    assert matcher.push("axb") == StopResult("a", True, "x")
    assert matcher.push("more") == StopResult("", True, "x")
    assert matcher.flush() == ""


@pytest.mark.parametrize("stops", [[], [""], ["", ""]])
def test_without_stops_text_passes_through_untouched(stops):
    text = "anything at all"
    result = StopMatcher(stops).push(text)
    assert result.text is text
    assert not result.stopped


def test_the_limits_themselves_are_allowed():
    StopMatcher([f"{i:04d}".ljust(1024, "x") for i in range(256)])
    StopMatcher(["a"] * 256 + [""] * 1000)


@pytest.mark.parametrize(
    ("stops", "complaint"),
    [
        (["a"] * 257, "257 stop strings were given, the limit is 256"),
        (["a", "b" * 1025], "stop string 1 has 1025 characters, the limit is 1024"),
        (["a", 3], "stop string 1 is a int"),
        ("ab", "not one string"),
    ],
)
def test_bad_stop_strings_are_refused_with_the_limit(stops: Any, complaint):
    with pytest.raises(InvalidArgument, match=complaint):
        StopMatcher(stops)


def test_the_worst_stops_stay_linear():
    # Comparing each ending with each beginning would take about 256 * 1,024 steps a character.
    stops = ["a" * (1024 - i) + "b" for i in range(1, 257)]
    started = time.process_time()
    matcher = StopMatcher(stops)
    for _ in range(20):
        for chunk in chunked("a" * 4000 + "c", [4]):
            matcher.push(chunk)
    assert time.process_time() - started < 5
