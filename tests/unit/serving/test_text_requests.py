"""The text model's inputs: all that the ensemble hands to the engine, the BLS way hands on too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from naiad.contract import ENSEMBLE, TENSORRT_LLM, TENSORRT_LLM_BLS
from naiad.contract.errors import NaiadError, Unsupported
from naiad.serving.sampling import encode_words
from naiad.serving.tensor_inputs import TensorInputs
from naiad.serving.text_requests import read_text_rows
from naiad.tokenization import Tokenizer, parse_messages
from tests.harness.tensors import inputs_of
from tests.harness.tiny_model import END, OTHER_END
from tests.unit.serving.text_rows import PROMPT, TURN, row, rows, written

# What the ensemble's preprocessing makes of the text side, and what happens to it here.
THROUGH_PREPROCESSING = {
    "QUERY": "input_ids", "MESSAGES": "input_ids", "REQUEST_OUTPUT_LEN": "request_output_len",
    "BAD_WORDS_DICT": "bad_words_list", "END_ID": "end_id", "PAD_ID": "pad_id",
}  # fmt: skip
REFUSED_IN_PREPROCESSING = {
    "DECODER_QUERY", "EMBEDDING_BIAS_WORDS", "EMBEDDING_BIAS_WEIGHTS", "PROMPT_TABLE_EXTRA_ID",
}  # fmt: skip
STOP_STRINGS = {"STOP_WORDS_DICT"}  # matched on the text, in this process
DECIDED_HERE = {
    "stream", "exclude_input_in_output", "return_num_input_tokens", "return_num_output_tokens",
    "num_return_sequences",
}  # fmt: skip
# Values that the engine takes as they are; everything else the engine refuses by name.
ACCEPTED: dict[str, Any] = {
    "top_k": 5, "top_p": 0.5, "temperature": 0.5, "length_penalty": 1.0, "repetition_penalty": 1.5,
    "min_tokens": 2, "min_length": 2, "presence_penalty": 0.5, "frequency_penalty": 0.5, "seed": 7,
    "random_seed": 7, "return_log_probs": True, "return_context_logits": False,
    "return_generation_logits": False, "return_perf_metrics": True, "beam_width": 1,
}  # fmt: skip


def ensemble_map(model: str) -> dict[str, str]:
    (step,) = [step for step in ENSEMBLE.steps if step.model == model]
    outside = {spec.name for spec in ENSEMBLE.inputs}
    return {inner: outer for inner, outer in step.inputs.items() if outer in outside}


def test_every_text_input_of_the_ensemble_has_its_fate_here() -> None:
    assert set(ensemble_map("preprocessing")) == {
        *THROUGH_PREPROCESSING, *REFUSED_IN_PREPROCESSING, *STOP_STRINGS,
    }  # fmt: skip
    passed = set(ensemble_map("tensorrt_llm").values()) - DECIDED_HERE
    assert set(ACCEPTED) <= passed
    assert {spec.name for spec in ENSEMBLE.inputs} <= {spec.name for spec in TENSORRT_LLM_BLS.inputs}


@pytest.mark.parametrize("text_name", sorted(DECIDED_HERE))
def test_what_is_decided_here_never_reaches_the_engine_as_sent(tokenizer: Tokenizer, text_name: str) -> None:
    value: Any = 1 if text_name == "num_return_sequences" else True
    plain, with_it = written(row(tokenizer)), written(row(tokenizer, **{text_name: value}))
    assert with_it == plain


@pytest.mark.parametrize(
    ("name", "value"), [("num_draft_tokens", 0), ("use_draft_logits", False), ("decoder_text_input", "")]
)
def test_inputs_that_ask_for_nothing_are_taken(tokenizer: Tokenizer, name: str, value: Any) -> None:
    assert written(row(tokenizer, **{name: value})) == written(row(tokenizer))


def test_the_engine_is_asked_for_the_prompts_ids_and_no_echo(tokenizer: Tokenizer) -> None:
    only = row(tokenizer)
    ids = tokenizer.encode("one two")
    assert only.prompt_ids == tuple(ids)
    assert written(only) == {
        "input_ids": [ids],
        "input_lengths": [[len(ids)]],
        "request_output_len": [[8]],
        "end_id": [[END]],
        "pad_id": [[tokenizer.pad_id]],
        "exclude_input_in_output": [[True]],
    }


def test_every_tensor_for_the_engine_has_the_contracts_dtype_and_shape(tokenizer: Tokenizer) -> None:
    given = {**ACCEPTED, "bad_words": ("two", "six"), "num_return_sequences": 2}
    for name, array in row(tokenizer, **given).engine_inputs.items():
        spec = TENSORRT_LLM.input(name)
        assert array.dtype == np.dtype(spec.dtype.numpy), name
        assert array.shape[0] == 1, name
        assert array.ndim == 1 + len(spec.dims), name


def test_values_declared_scalar_arrive_without_their_inner_dimension_and_leave_with_it(
    tokenizer: Tokenizer,
) -> None:
    flat = {"return_log_probs": np.array([True]), "num_return_sequences": np.array([2], dtype=np.int32)}
    inputs = TensorInputs({**inputs_of(TENSORRT_LLM_BLS, **PROMPT).tensors, **flat}, 1)
    (only,) = read_text_rows(inputs, tokenizer, requested_outputs=(), decoupled=True)
    assert only.sequences == 2
    assert only.engine_inputs["return_log_probs"].tolist() == [[True]]


def test_the_callers_end_and_pad_ids_replace_the_tokenizers(tokenizer: Tokenizer) -> None:
    sent = written(row(tokenizer, end_id=OTHER_END, pad_id=9))
    assert (sent["end_id"], sent["pad_id"]) == ([[OTHER_END]], [[9]])


def test_bad_words_are_encoded_for_the_engine_and_stop_words_kept_as_text(tokenizer: Tokenizer) -> None:
    only = row(tokenizer, bad_words=("two", "", "six"), stop_words=("stop", "", "ten"))
    expected = encode_words([tokenizer.encode_words(["two", "six"])])
    assert np.array_equal(only.engine_inputs["bad_words_list"], expected)
    assert only.stop_words == ("stop", "ten")
    assert "stop_words_list" not in only.engine_inputs


def test_several_sequences_are_asked_for_only_when_wanted(tokenizer: Tokenizer) -> None:
    assert written(row(tokenizer, num_return_sequences=3))["num_return_sequences"] == [[3]]
    assert row(tokenizer, num_return_sequences=3).sequences == 3
    assert "num_return_sequences" not in row(tokenizer, num_return_sequences=1).engine_inputs


def test_messages_take_the_place_of_text(tokenizer: Tokenizer) -> None:
    (only,) = rows(tokenizer, messages=TURN, max_tokens=8)
    assert list(only.prompt_ids) == tokenizer.encode_messages(parse_messages(TURN))


@pytest.mark.parametrize(
    ("values", "echo"),
    [
        ({"text_input": "one"}, True),
        ({"messages": TURN}, False),
        ({"messages": TURN, "exclude_input_in_output": False}, True),
        ({"text_input": "one", "exclude_input_in_output": True}, False),
        ({"text_input": "one", "exclude_input_in_output": False}, True),
        ({"text_input": "one", "stream": True}, False),
        ({"text_input": "one", "stream": True, "exclude_input_in_output": False}, False),
    ],
)
def test_a_text_prompt_is_echoed_by_default_and_a_conversation_only_when_asked_for(
    tokenizer: Tokenizer, values: dict[str, Any], echo: bool
) -> None:
    (only,) = rows(tokenizer, max_tokens=8, **values)
    assert only.echo_prompt is echo


def test_each_prompt_of_a_batch_is_a_row_of_its_own(tokenizer: Tokenizer) -> None:
    first, second = rows(
        tokenizer, batch_size=2, text_input=[["one"], ["two three"]], max_tokens=[[3], [4]],
        stop_words=[["a", ""], ["b", "c"]], temperature=[[0.5], [1.5]],
    )  # fmt: skip
    assert (first.batch_index, second.batch_index) == (0, 1)
    assert (first.max_tokens, second.max_tokens) == (3, 4)
    assert (first.stop_words, second.stop_words) == (("a",), ("b", "c"))
    assert [one.engine_inputs["temperature"].tolist() for one in (first, second)] == [[[0.5]], [[1.5]]]
    assert list(second.prompt_ids) == tokenizer.encode("two three")


def test_a_wrong_row_refuses_the_whole_request(tokenizer: Tokenizer) -> None:
    with pytest.raises(NaiadError, match="text_input is empty"):
        rows(tokenizer, batch_size=2, text_input=[["one"], [""]], max_tokens=[[3], [4]])


@pytest.mark.parametrize(
    ("values", "requested", "expected"),
    [
        ({}, (), {"text_output", "finish_reason"}),
        ({}, ("text_output",), {"text_output"}),
        ({"return_num_output_tokens": True}, ("text_output", "num_output_tokens"), None),
        ({}, ("num_output_tokens", "text_output"), {"text_output"}),
        ({"return_perf_metrics": True}, ("first_token_time_ns", "acceptance_rate"), {"first_token_time_ns"}),
    ],
)
def test_outputs_are_those_requested_that_are_produced(
    tokenizer: Tokenizer, values: dict[str, Any], requested: tuple[str, ...], expected: set[str] | None
) -> None:
    (only,) = rows(tokenizer, outputs=requested, **{**PROMPT, **values})
    if requested:
        assert only.outputs == (set(requested) if expected is None else expected)
    else:
        assert expected is not None
        assert expected <= only.outputs
        assert "num_output_tokens" not in only.outputs


@pytest.mark.parametrize(("engine_name", "text_name"), ensemble_map("tensorrt_llm").items())
def test_what_the_ensemble_maps_to_the_engine_is_passed_on_or_refused_by_name(
    tokenizer: Tokenizer, engine_name: str, text_name: str
) -> None:
    """The class of tensorrtllm_backend's issues 472 and 520: an input that is silently dropped."""
    spec = TENSORRT_LLM_BLS.input(text_name)
    if text_name in DECIDED_HERE:
        return
    if text_name in ACCEPTED:
        sent = row(tokenizer, **{text_name: ACCEPTED[text_name]}).engine_inputs[engine_name]
        expected = np.array([[ACCEPTED[text_name]]], dtype=np.dtype(spec.dtype.numpy))
        assert np.array_equal(sent, expected)
        assert sent.dtype == np.dtype(TENSORRT_LLM.input(engine_name).dtype.numpy)
        return
    text = spec.dtype.wire_name == "BYTES"
    shape = (1, *(2 if size == -1 else size for size in spec.dims))
    value = np.full(shape, "x" if text else 3, dtype=np.object_ if text else np.int64).tolist()
    with pytest.raises(Unsupported, match=f"input {text_name} is not supported"):
        row(tokenizer, **{text_name: value})
