"""The engine's host over the synthetic engine: what requests of every shape get."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.tiny_model import END
from tests.unit.triton.engine_calls import BATCH, LONG, PROMPT, Start, ids, reasons


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_request_that_does_not_stream_is_one_final_response(engine_model: Start, decoupled: bool) -> None:
    (only,) = engine_model(decoupled=decoupled).answer()
    assert only.final
    assert only.tensors["output_ids"].tolist() == [[[40, 41, 42, 40, 41]]]
    assert only.tensors["sequence_length"].tolist() == [[5]]
    assert reasons([only]) == ["length"]


def test_a_stream_is_a_response_a_token_and_the_last_one_is_final(engine_model: Start) -> None:
    messages = engine_model().answer({**PROMPT, "streaming": True})
    assert [message.tensors["sequence_length"].item() for message in messages] == [1] * 5
    assert ids(messages) == [40, 41, 42, 40, 41]
    assert reasons(messages) == ["length"]
    assert [message.final for message in messages] == [False] * 4 + [True]


def test_the_models_default_decides_about_the_echo(engine_model: Start) -> None:
    assert ids(engine_model(exclude_input_in_output="false").answer()) == [40, 41, 42, 40, 41, 42, 40, 41]


def test_log_probs_of_a_stream_add_up(engine_model: Start) -> None:
    messages = engine_model().answer({**PROMPT, "streaming": True, "return_log_probs": True})
    assert [message.tensors["cum_log_probs"].item() for message in messages] == [-0.5, -1.0, -1.5, -2.0, -2.5]
    (only,) = engine_model().answer({**PROMPT, "return_log_probs": True})
    assert only.tensors["cum_log_probs"].tolist() == [[-2.5]]
    assert only.tensors["output_log_probs"].tolist() == [[[-0.5] * 5]]


def test_only_requested_outputs_are_sent(engine_model: Start) -> None:
    (only,) = engine_model().answer(outputs=["output_ids"])
    assert set(only.tensors) == {"output_ids"}


def test_a_batch_is_one_response_a_row_with_its_index(engine_model: Start) -> None:
    messages = engine_model().answer(BATCH)
    by_row = {message.tensors["batch_index"].item(): ids([message]) for message in messages}
    assert by_row == {0: [40, 41, 40], 1: [50, 51, 50]}
    assert [message.final for message in messages] == [False, True]


def test_a_batch_of_a_non_decoupled_model_is_one_stacked_response(engine_model: Start) -> None:
    (only,) = engine_model(decoupled=False).answer({**BATCH, "return_log_probs": [[True], [False]]})
    assert only.tensors["output_ids"].tolist() == [[[40, 41, 40]], [[50, 51, 50]]]
    assert only.tensors["cum_log_probs"].tolist() == [[-1.5], [0.0]]


def test_several_sequences_are_told_apart(engine_model: Start) -> None:
    messages = engine_model().answer({**PROMPT, "num_return_sequences": 2})
    assert sorted(message.tensors["sequence_index"].item() for message in messages) == [0, 1]
    assert [message.final for message in messages] == [False, True]


def test_the_end_id_of_the_model_ends_an_answer(engine_model: Start, tokenizer: Any) -> None:
    script = tokenizer.decode(tokenizer.encode("one two"))
    messages = engine_model(synthetic_script=script).answer({**LONG, "end_id": END})
    assert tokenizer.decode(ids(messages)) == "one two"
    assert reasons(messages) == ["stop"]
