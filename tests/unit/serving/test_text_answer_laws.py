"""Laws of text answers (E01, E02, E08, E09, C15), over a dozen tokenizers and any chunking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from naiad.serving.text_answers import TextAnswer
from naiad.tokenization import Tokenizer
from tests.unit.serving.engine_answers import (
    EXAMPLES,
    Response,
    answered,
    ids_of,
    joined,
    reason_of,
    sizes,
    spoken,
    stream,
    text_of,
    text_row,
)
from tests.unit.tokenization.conftest import FAMILIES, _write_model

DEFAULT = Path(__file__).parents[3] / ".artifacts" / "models" / "default"


@pytest.fixture(scope="session", params=["default", *FAMILIES])
def any_tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    if request.param == "default":
        if not DEFAULT.is_dir():
            pytest.skip("the default model is not prepared")
        return Tokenizer.load(DEFAULT.resolve())
    return Tokenizer.load(
        _write_model(tmp_path_factory.mktemp("family") / request.param, FAMILIES[request.param]())
    )


def until_stop(text: str, stops: Sequence[str]) -> str:
    """Reference: the text before the stop that is complete first, the longest of several."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


@EXAMPLES
@given(text=spoken, sizes=sizes)
def test_e01_joined_deltas_are_the_one_shot_text(
    any_tokenizer: Tokenizer, text: str, sizes: list[int]
) -> None:
    ids = ids_of(any_tokenizer, text)
    deltas = answered(any_tokenizer, text_row(), stream(ids, sizes))
    whole = answered(any_tokenizer, text_row(streaming=False), stream(ids, sizes))
    assert len(whole) == 1
    assert joined(deltas) == joined(whole) == any_tokenizer.decode(ids)


@EXAMPLES
@given(text=spoken, sizes=sizes)
def test_e02_no_replacement_character_is_sent_that_the_text_does_not_hold(
    any_tokenizer: Tokenizer, text: str, sizes: list[int]
) -> None:
    assume("\ufffd" not in any_tokenizer.decode(ids_of(any_tokenizer, text)))
    deltas = answered(any_tokenizer, text_row(), stream(ids_of(any_tokenizer, text), sizes))
    assert all("\ufffd" not in text_of(delta) for delta in deltas)


@EXAMPLES
@given(data=st.data(), text=spoken, sizes=sizes, other=st.lists(st.text("STOPaé.", min_size=1), max_size=2))
def test_c15_nothing_of_a_stop_string_leaks_whatever_tokens_it_spans(
    any_tokenizer: Tokenizer, data: st.DataObject, text: str, sizes: list[int], other: list[str]
) -> None:
    ids = ids_of(any_tokenizer, text)
    whole = any_tokenizer.decode(ids)
    stops = list(other)
    if whole:
        start = data.draw(st.integers(0, len(whole) - 1))
        stops.append(whole[start : data.draw(st.integers(start + 1, len(whole)))])
    expected = until_stop(whole, stops)
    for streaming in (True, False):
        row = text_row(stop_words=tuple(stops), streaming=streaming)
        sent = answered(any_tokenizer, row, stream(ids, sizes))
        assert joined(sent) == expected
        assert reason_of(sent[-1]) == ("stop" if expected != whole else "length")
        for upto in range(len(sent)):
            assert expected.startswith(joined(sent[: upto + 1]))


@EXAMPLES
@given(text=spoken, sizes=sizes, stop=st.text("STOP", max_size=3), accumulate=st.booleans())
def test_e08_token_counts_of_the_responses_sum_to_the_tokens_received(
    tokenizer: Tokenizer, text: str, sizes: list[int], stop: str, accumulate: bool
) -> None:
    ids = ids_of(tokenizer, text)
    answer = TextAnswer(
        text_row(stop_words=(stop,)), tokenizer, skip_special_tokens=True, accumulate=accumulate
    )
    sent: list[Response] = []
    for chunk in stream(ids, sizes):
        sent += answer.feed(chunk)
    counted = sum(response["num_output_tokens"].item() for response in sent)
    assert counted == answer.output_tokens
    if not answer.stopped_early:
        assert counted == len(ids)


@EXAMPLES
@given(text=spoken, sizes=sizes)
def test_e09_accumulated_answers_repeat_the_whole_text_so_far(
    tokenizer: Tokenizer, text: str, sizes: list[int]
) -> None:
    ids = ids_of(tokenizer, text)
    deltas = answered(tokenizer, text_row(), stream(ids, sizes))
    whole = answered(tokenizer, text_row(), stream(ids, sizes), accumulate=True)
    assert [text_of(response) for response in whole] == [
        joined(deltas[: upto + 1]) for upto in range(len(deltas))
    ]


@EXAMPLES
@given(prompt=spoken, text=spoken, sizes=sizes)
def test_an_echoed_prompt_and_its_answer_are_one_text(
    tokenizer: Tokenizer, prompt: str, text: str, sizes: list[int]
) -> None:
    prompt_ids, ids = ids_of(tokenizer, prompt), ids_of(tokenizer, text)
    row = text_row(streaming=False, echo_prompt=True, prompt_ids=tuple(prompt_ids))
    (only,) = answered(tokenizer, row, stream(ids, sizes))
    assert text_of(only) == tokenizer.decode([*prompt_ids, *ids])
    assert only["num_output_tokens"].item() == len(ids)
    assert only["num_input_tokens"].item() == len(prompt_ids)
