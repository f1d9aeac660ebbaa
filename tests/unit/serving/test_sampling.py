"""Sampling values: each tensor of the contract is read, checked to be neutral, or refused by its name."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.contract import TENSORRT_LLM, TensorSpec
from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.contract.generation import SamplingParams
from naiad.serving.sampling import NEUTRAL, UNSUPPORTED, encode_words, read_sampling, refuse_unsupported
from naiad.serving.tensor_inputs import TensorInputs
from tests.harness.tensors import inputs_of

MODEL_END_IDS = frozenset({2, 0})

# Every input of the engine that is read; the others must be in NEUTRAL or in UNSUPPORTED.
SAMPLING = {
    "request_output_len", "end_id", "stop_words_list", "bad_words_list", "temperature", "runtime_top_k",
    "runtime_top_p", "repetition_penalty", "min_tokens", "min_length", "presence_penalty",
    "frequency_penalty", "seed", "random_seed", "return_log_probs",
}  # fmt: skip
REQUEST = {
    "input_ids", "input_lengths", "num_return_sequences", "stop", "streaming", "exclude_input_in_output",
    "return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens", "beam_width",
}  # fmt: skip
WITHOUT_EFFECT = {"pad_id"}  # outputs are never padded: one row a response
NEUTRAL_FLAGS = {"return_context_logits", "return_generation_logits"}


def inputs(**values: Any) -> TensorInputs:
    return inputs_of(TENSORRT_LLM, **{"request_output_len": 16, **values})


def sampling(**values: Any) -> SamplingParams:
    return read_sampling(inputs(**values), 0, MODEL_END_IDS)


def test_every_input_of_the_contract_is_read_or_checked_or_refused() -> None:
    declared = {spec.name for spec in TENSORRT_LLM.inputs}
    handled = (SAMPLING, REQUEST, WITHOUT_EFFECT, NEUTRAL_FLAGS, set(NEUTRAL), set(UNSUPPORTED))
    assert sum(map(len, handled)) == len(declared)
    assert set().union(*handled) == declared


def something(spec: TensorSpec) -> Any:
    """A value of the input's type that asks for something."""
    shape = (1, *(3 if size == -1 else size for size in spec.dims))
    dtype = np.dtype(spec.dtype.numpy)
    return np.full(shape, b"x" if dtype == np.object_ else 7, dtype=dtype)


@pytest.mark.parametrize("name", [*UNSUPPORTED, *NEUTRAL, *sorted(NEUTRAL_FLAGS)])
def test_a_tensor_the_engines_cannot_serve_is_refused_by_its_name(name: str) -> None:
    given_one = TensorInputs({name: something(TENSORRT_LLM.input(name))}, 1)
    with pytest.raises(Unsupported, match=f"^input {name} is not supported by this engine"):
        refuse_unsupported(given_one, 1)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_refused_tensor_that_is_empty_asks_for_nothing(name: str) -> None:
    """The ensemble's preprocessing sends an empty embedding_bias when none was asked for."""
    spec = TENSORRT_LLM.input(name)
    shape = (1, 0, *(abs(size) for size in spec.dims[1:]))
    empty = np.zeros(shape, dtype=np.dtype(spec.dtype.numpy))
    refuse_unsupported(TensorInputs({name: empty}, 1), 1)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in NEUTRAL for value in NEUTRAL[name]])
def test_a_setting_of_beam_search_is_taken_where_it_changes_nothing(name: str, value: float) -> None:
    refuse_unsupported(inputs(**{name: value}), 1)


@pytest.mark.parametrize("name", sorted(NEUTRAL_FLAGS))
def test_logits_may_be_declined(name: str) -> None:
    refuse_unsupported(inputs(**{name: False}), 1)


@pytest.mark.parametrize("name", ["len_penalty", "lora_task_id", "return_context_logits"])
def test_one_offending_row_of_a_batch_is_enough_for_a_refusal(name: str) -> None:
    values = inputs_of(TENSORRT_LLM, batch_size=2, **{name: [[0], [5]]})
    with pytest.raises(Unsupported, match=name):
        refuse_unsupported(values, 1)


@pytest.mark.parametrize("width", [0, -1, 2])
def test_a_beam_width_outside_the_models_is_refused(width: int) -> None:
    with pytest.raises(InvalidArgument, match=f"beam_width must be from 1 to 1, not {width}"):
        refuse_unsupported(inputs(beam_width=width), 1)
    refuse_unsupported(inputs(beam_width=1), 1)


def test_the_defaults_are_those_of_the_contract() -> None:
    assert sampling() == SamplingParams(max_tokens=16)


# tensor values -> the one field that they change
READ: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"request_output_len": 7}, {"max_tokens": 7}),
    ({"min_tokens": 3}, {"min_tokens": 3}),
    ({"min_length": 3}, {"min_tokens": 3}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"temperature": 0.0}, {"temperature": 0.0}),
    ({"runtime_top_k": 40}, {"top_k": 40}),
    ({"runtime_top_p": 0.5}, {"top_p": 0.5}),
    ({"repetition_penalty": 1.25}, {"repetition_penalty": 1.25}),
    ({"presence_penalty": -0.5}, {"presence_penalty": -0.5}),
    ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
    ({"seed": 0}, {"seed": 0}),
    ({"random_seed": 5}, {"seed": 5}),
    ({"end_id": 9}, {"end_ids": frozenset({9})}),
    ({"stop_words_list": [[[5, 6, 7], [2, 3, -1]]]}, {"stop_sequences": ((5, 6), (7,))}),
    ({"bad_words_list": [[[5, 6, 7], [2, 3, -1]]]}, {"bad_sequences": ((5, 6), (7,))}),
    ({"return_log_probs": True}, {"log_probs": True}),
]


@pytest.mark.parametrize(("values", "changed"), READ, ids=[str(next(iter(values))) for values, _ in READ])
def test_a_tensor_changes_its_own_field_and_no_other(values: dict[str, Any], changed: dict[str, Any]) -> None:
    assert sampling(**values) == replace(SamplingParams(max_tokens=16), **changed)


def test_every_sampling_tensor_and_every_field_has_a_row_in_the_table() -> None:
    assert {name for values, _ in READ for name in values} == SAMPLING
    assert {name for _, changed in READ for name in changed} == {
        field.name for field in fields(SamplingParams)
    }


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("request_output_len", [0, -1, 2**20 + 1]),
        ("min_tokens", [-1, 17]),
        ("min_length", [-1, 17]),
        ("temperature", [-0.1, 100.5, float("nan"), float("inf")]),
        ("runtime_top_k", [-1]),
        ("runtime_top_p", [-0.1, 1.1, float("nan"), float("-inf")]),
        ("repetition_penalty", [0.0, -1.0, 101.0, float("nan")]),
        ("presence_penalty", [-2.1, 2.1, float("nan")]),
        ("frequency_penalty", [-2.1, 2.1, float("inf")]),
        ("end_id", [-2]),
    ],
)
def test_c05_a_value_out_of_range_never_reaches_the_engine(name: str, wrong: list[float]) -> None:
    shown = "min_tokens" if name == "min_length" else name
    for value in wrong:
        with pytest.raises(InvalidArgument, match=f"{shown}|{name}"):
            sampling(**{name: value})


def test_a_request_must_say_how_many_tokens_it_wants() -> None:
    with pytest.raises(InvalidArgument, match="request_output_len is missing"):
        read_sampling(TensorInputs({}, 1), 0, MODEL_END_IDS)


@pytest.mark.parametrize(("new", "old"), [("min_tokens", "min_length"), ("seed", "random_seed")])
def test_old_and_new_name_of_a_setting_must_agree(new: str, old: str) -> None:
    assert sampling(**{new: 4, old: 4}) == sampling(**{new: 4})
    with pytest.raises(InvalidArgument, match=f"{new} and {old} are the same setting"):
        sampling(**{new: 4, old: 5})


@pytest.mark.parametrize(
    ("values", "greedy"),
    [
        ({}, True),
        ({"runtime_top_k": 0}, True),
        ({"runtime_top_k": 1}, True),
        ({"runtime_top_k": 1, "runtime_top_p": 0.0}, True),
        ({"runtime_top_k": 1, "runtime_top_p": 0.9}, True),
        ({"temperature": 1.5}, True),
        ({"temperature": 0.0, "runtime_top_k": 50}, True),
        ({"runtime_top_p": 0.0}, True),
        ({"runtime_top_k": 2}, False),
        ({"runtime_top_p": 0.9}, False),
        ({"runtime_top_p": 1.0}, False),
        ({"runtime_top_k": 40, "runtime_top_p": 0.9, "temperature": 0.7}, False),
    ],
)
def test_sampling_is_greedy_exactly_when_tensorrt_llms_is(values: dict[str, Any], greedy: bool) -> None:
    assert sampling(**values).greedy is greedy


@pytest.mark.parametrize(
    ("end_id", "expected"),
    [(None, frozenset()), (-1, frozenset()), (2, MODEL_END_IDS), (0, MODEL_END_IDS), (9, frozenset({9}))],
)
def test_one_of_the_models_end_ids_stands_for_all_and_a_negative_for_none(
    end_id: int | None, expected: frozenset[int]
) -> None:
    values = {} if end_id is None else {"end_id": end_id}
    assert sampling(**values).end_ids == expected


@pytest.mark.parametrize(
    "flat_and_offsets",
    [
        [[5, 6, 7], [3, 2, -1]],  # falls
        [[5, 6, 7], [2, 2, -1]],  # an empty word
        [[5, 6, 7], [0, 2, -1]],  # an empty first word
        [[5, 6, 7], [2, 4, -1]],  # beyond the ids
    ],
)
def test_d3_offsets_that_do_not_rise_within_the_ids_are_refused(flat_and_offsets: list[list[int]]) -> None:
    with pytest.raises(InvalidArgument, match="stop_words_list: offsets must rise and stay within 3"):
        sampling(stop_words_list=[flat_and_offsets])


@pytest.mark.parametrize("shape", [(1, 3), (1, 1, 3), (1, 3, 2), (1, 2, 2, 2)])
def test_d3_word_lists_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    tensors: dict[str, Any] = {"bad_words_list": np.ones(shape, dtype=np.int32)}
    with pytest.raises(InvalidArgument, match=r"bad_words_list must have shape \[2, N\]"):
        read_sampling(TensorInputs({**inputs().tensors, **tensors}, 1), 0, MODEL_END_IDS)


def test_d3_what_stands_after_the_first_padding_is_ignored() -> None:
    assert sampling(stop_words_list=[[[5, 6, 7], [1, -1, 3]]]).stop_sequences == ((5,),)
    assert sampling(stop_words_list=[[[0, 0], [-1, -1]]]).stop_sequences == ()


def test_d3_the_contracts_example_is_written_as_it_stands_there() -> None:
    assert encode_words([[[5, 6], [7]]]).tolist() == [[[5, 6, 7], [2, 3, -1]]]


def test_no_words_are_written_as_an_empty_list() -> None:
    array = encode_words([[], []])
    assert (array.shape, array.dtype) == ((2, 2, 0), np.dtype(np.int32))


def test_c15_more_words_than_a_request_may_have_are_refused() -> None:
    ids = list(range(1025))
    with pytest.raises(InvalidArgument, match="stop_words_list holds 1025 words; at most 1024"):
        sampling(stop_words_list=[[ids, [place + 1 for place in ids]]])


words = st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), max_size=6)


@settings(deadline=None, max_examples=50)
@given(st.lists(words, min_size=1, max_size=4))
def test_d3_words_survive_writing_and_reading_in_every_row_of_a_batch(rows: list[list[list[int]]]) -> None:
    array = encode_words(rows)
    assert array.dtype == np.int32
    assert array.shape[:2] == (len(rows), 2)
    batch = TensorInputs(
        {"stop_words_list": array, "request_output_len": np.ones((len(rows), 1), dtype=np.int32)}, len(rows)
    )
    for row, expected in enumerate(rows):
        assert read_sampling(batch, row, MODEL_END_IDS).stop_sequences == tuple(map(tuple, expected))
