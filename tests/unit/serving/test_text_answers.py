"""Text answers case by case: what is sent when, true ends, several sequences, log probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from naiad.contract import TENSORRT_LLM_BLS, FinishReason
from naiad.contract.errors import InvalidArgument
from naiad.contract.generation import RequestTimes, TokenChunk
from naiad.serving.text_answers import TextAnswer
from naiad.tokenization import Tokenizer
from tests.harness.tiny_model import END
from tests.unit.serving.engine_answers import (
    OUTPUTS,
    Response,
    answered,
    engine_response,
    ids_of,
    joined,
    make,
    reason_of,
    stream,
    text_of,
    text_row,
)


def two_sequences(tokenizer: Tokenizer) -> Iterator[TokenChunk]:
    first, second = ids_of(tokenizer, "one two"), ids_of(tokenizer, "six seven")
    yield engine_response(first, sequence=0)
    yield engine_response(second[:1], sequence=1)
    yield engine_response([], "stop", sequence=0)
    yield engine_response(second[1:], sequence=1)
    yield engine_response([], "length", sequence=1)


def test_a_delta_is_sent_only_when_there_is_text_but_the_end_always(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "𝄞")
    assert len(ids) == 4  # a token a byte: three of them make no text
    answer = TextAnswer(text_row(), tokenizer, skip_special_tokens=True, accumulate=False)
    sent = [list(answer.feed(engine_response([token]))) for token in ids]
    assert [len(responses) for responses in sent] == [0, 0, 0, 1]
    assert sent[3][0]["num_output_tokens"].item() == 4
    (end,) = answer.feed(engine_response([], "length"))
    assert (text_of(end), reason_of(end)) == ("", "length")


@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize("streaming", [True, False])
def test_e03_a_cut_inside_a_character_leaves_a_valid_prefix_and_says_length(
    tokenizer: Tokenizer, kept: int, streaming: bool
) -> None:
    ids = ids_of(tokenizer, "né 𝄞")
    cut = ids[: len(ids) - 4 + kept]
    sent = answered(tokenizer, text_row(streaming=streaming, max_tokens=len(cut)), stream(cut, [1]))
    assert joined(sent) == "né "
    assert reason_of(sent[-1]) == "length"
    assert sum(response["num_output_tokens"].item() for response in sent) == len(cut)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("reason", ["stop", "cancelled", "timeout"])
def test_e05_an_answer_of_no_tokens_is_one_terminal_response(
    tokenizer: Tokenizer, streaming: bool, reason: str
) -> None:
    (only,) = answered(tokenizer, text_row(streaming=streaming), [engine_response([], reason)])
    assert (text_of(only), reason_of(only), only["num_output_tokens"].item()) == ("", reason, 0)


@pytest.mark.parametrize("reason", [reason.value for reason in FinishReason])
def test_e07_the_engines_reason_is_passed_on_with_the_last_response_only(
    tokenizer: Tokenizer, reason: str
) -> None:
    sent = answered(tokenizer, text_row(), stream(ids_of(tokenizer, "one two three"), [1], reason))
    assert [reason_of(response) for response in sent[:-1]] == [None] * (len(sent) - 1)
    assert reason_of(sent[-1]) == reason


@pytest.mark.parametrize(("short", "expected"), [(0, "length"), (1, "stop")])
def test_e07_an_engine_without_reasons_ended_by_length_if_it_produced_all_it_was_asked(
    tokenizer: Tokenizer, short: int, expected: str
) -> None:
    ids = ids_of(tokenizer, "one two three")
    sent = answered(tokenizer, text_row(max_tokens=len(ids) + short), stream(ids, [1], None))
    assert joined(sent) == "one two three"
    assert reason_of(sent[-1]) == expected


def test_e07_an_engine_without_reasons_that_says_nothing_ends_too(tokenizer: Tokenizer) -> None:
    (only,) = answered(tokenizer, text_row(), [])
    assert (text_of(only), reason_of(only)) == ("", "stop")


def test_e07_a_stop_string_wins_over_the_length(tokenizer: Tokenizer) -> None:
    sent = answered(
        tokenizer, text_row(stop_words=("three",)), stream(ids_of(tokenizer, "one two three"), [99])
    )
    assert (joined(sent), reason_of(sent[-1])) == ("one two ", "stop")


def test_what_only_begins_a_stop_string_is_held_back_and_sent_at_the_end(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "one ST")
    sent = answered(tokenizer, text_row(stop_words=("STOP",)), stream(ids, [1]))
    assert (joined(sent), reason_of(sent[-1])) == ("one ST", "length")
    assert all("S" not in text_of(response) for response in sent[:-1])


def test_an_answer_stopped_by_a_string_says_whether_the_engine_still_works_on_it(
    tokenizer: Tokenizer,
) -> None:
    ids = ids_of(tokenizer, "one STOP")
    early = make(tokenizer, stop_words=("STOP",))
    list(early.feed(engine_response(ids)))
    assert (early.done, early.stopped_early, early.finish_reason) == (True, True, FinishReason.STOP)
    at_the_end = make(tokenizer, stop_words=("STOP",))
    list(at_the_end.feed(engine_response(ids, "length")))
    assert (at_the_end.done, at_the_end.stopped_early) == (True, False)


def test_what_the_engine_says_after_a_stop_is_not_sent(tokenizer: Tokenizer) -> None:
    answer = make(tokenizer, stop_words=("STOP",))
    list(answer.feed(engine_response(ids_of(tokenizer, "one STOP two"))))
    assert list(answer.feed(engine_response(ids_of(tokenizer, " more"), "length"))) == []
    assert list(answer.close()) == []


def test_an_answer_knows_whether_anything_was_sent(tokenizer: Tokenizer) -> None:
    answer = make(tokenizer)
    assert not answer.started
    list(answer.feed(engine_response(ids_of(tokenizer, "𝄞")[:1])))
    assert not answer.started
    list(answer.feed(engine_response(ids_of(tokenizer, "one"))))
    assert answer.started


def test_a_single_response_is_not_accumulated_twice(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "one two")
    (only,) = answered(tokenizer, text_row(streaming=False), stream(ids, [1]), accumulate=True)
    assert text_of(only) == "one two"


def test_a_stop_string_in_an_echoed_prompt_stops_nothing(tokenizer: Tokenizer) -> None:
    row = text_row(
        streaming=False, echo_prompt=True, stop_words=("STOP",), prompt_ids=tuple(ids_of(tokenizer, "a STOP"))
    )
    (only,) = answered(tokenizer, row, stream(ids_of(tokenizer, " b STOP c"), [1]))
    assert text_of(only) == "a STOP b "


def test_special_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    sent = answered(tokenizer, text_row(), stream([*ids_of(tokenizer, "one"), END], [1], "stop"))
    assert joined(sent) == "one"


def test_several_sequences_are_told_apart_and_end_one_by_one(tokenizer: Tokenizer) -> None:
    sent = answered(tokenizer, text_row(sequences=2), list(two_sequences(tokenizer)))
    by_sequence: dict[int, list[Response]] = {0: [], 1: []}
    for response in sent:
        by_sequence[response["sequence_index"].item()].append(response)
    assert {index: joined(part) for index, part in by_sequence.items()} == {0: "one two", 1: "six seven"}
    assert {index: reason_of(part[-1]) for index, part in by_sequence.items()} == {0: "stop", 1: "length"}


def test_a_request_is_done_when_its_last_sequence_is(tokenizer: Tokenizer) -> None:
    answer = make(tokenizer, sequences=2, stop_words=("two",))
    done = []
    for chunk in two_sequences(tokenizer):
        list(answer.feed(chunk))
        done.append(answer.done)
    assert done == [False, False, False, False, True]
    assert answer.stopped_early


def test_one_sequence_has_no_index_and_one_row_neither(tokenizer: Tokenizer) -> None:
    (only,) = answered(tokenizer, text_row(), [engine_response(ids_of(tokenizer, "one"), "stop")])
    assert not {"sequence_index", "batch_index"} & set(only)
    (third,) = answered(tokenizer, text_row(batch_index=2), [engine_response([], "stop")])
    assert third["batch_index"].tolist() == [[2]]


def test_log_probs_travel_with_the_text_of_their_tokens(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "𝄞 one")
    engine = [engine_response([token], log_probs=True) for token in ids]
    end = engine_response([], "stop", log_probs=True)
    sent = answered(tokenizer, text_row(log_probs=True), [*engine, end])
    lengths = [response["output_log_probs"].shape for response in sent]
    assert lengths[0] == (1, 1, 4)
    assert sum(shape[2] for shape in lengths) == len(ids)
    assert [response["cum_log_probs"].item() for response in sent[-2:]] == [-0.5 * len(ids)] * 2
    assert sent[0]["cum_log_probs"].tolist() == [[-2.0]]


def test_log_probs_of_a_single_response_are_all_of_them(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "one two")
    engine = [engine_response([token], log_probs=True) for token in ids]
    (only,) = answered(tokenizer, text_row(streaming=False, log_probs=True), engine)
    assert only["output_log_probs"].tolist() == [[[-0.5] * len(ids)]]
    assert only["cum_log_probs"].tolist() == [[-0.5 * len(ids)]]


def test_log_probs_nobody_asked_for_are_not_sent(tokenizer: Tokenizer) -> None:
    (only,) = answered(tokenizer, text_row(), [engine_response([5], "stop", log_probs=True)])
    assert not {"output_log_probs", "cum_log_probs"} & set(only)


def test_times_are_sent_with_the_end_only(tokenizer: Tokenizer) -> None:
    row = text_row(outputs=OUTPUTS | {"arrival_time_ns", "last_token_time_ns"})
    first, end = engine_response(ids_of(tokenizer, "one")), engine_response([], "stop")
    end.times = RequestTimes(5.0, 6.0, None, None)
    sent = answered(tokenizer, row, [first, end])
    assert [("arrival_time_ns" in response) for response in sent] == [False, True]
    assert sent[-1]["arrival_time_ns"].tolist() == [[5_000_000_000]]
    assert "last_token_time_ns" not in sent[-1]


def test_every_output_has_the_contracts_dtype_and_shape(tokenizer: Tokenizer) -> None:
    row = text_row(sequences=2, batch_index=1, log_probs=True)
    answer = TextAnswer(row, tokenizer, skip_special_tokens=True, accumulate=False)
    (response,) = answer.feed(engine_response(ids_of(tokenizer, "one"), "stop", sequence=1, log_probs=True))
    assert set(response) == OUTPUTS
    for name, array in response.items():
        spec = TENSORRT_LLM_BLS.output(name)
        assert array.dtype == np.dtype(spec.dtype.numpy), name
        # Clients of the upstream model decode element 0 of a flat text_output.
        assert array.ndim == (1 if name == "text_output" else 1 + len(spec.dims)), name


def test_only_the_outputs_of_the_row_are_sent(tokenizer: Tokenizer) -> None:
    row = text_row(outputs=frozenset({"text_output"}))
    sent = answered(tokenizer, row, stream(ids_of(tokenizer, "one two"), [1]))
    assert all(set(response) == {"text_output"} for response in sent)


def test_an_id_that_the_vocabulary_does_not_have_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidArgument, match="not in the vocabulary"):
        list(make(tokenizer).feed(engine_response([100_000])))
