"""The engine's tensors: which sequences a request asks for, and how their tokens are written."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from naiad.contract import TENSORRT_LLM, FinishReason, RequestTimes, TokenChunk
from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.engines.base import EngineLimits
from naiad.serving.engine_requests import MAX_RETURN_SEQUENCES, EngineRow, read_rows, wants_stop
from naiad.serving.tensor_inputs import TensorInputs
from tests.harness.tensors import inputs_of

LIMITS = EngineLimits(
    vocab_size=100, max_seq_len=64, kv_capacity_tokens=1000, end_ids=frozenset({2}),
)  # fmt: skip
PROMPT = {"input_ids": (4, 5, 6), "input_lengths": 3, "request_output_len": 8}
BATCH: dict[str, Any] = {
    "input_ids": [[4, 5, 6], [7, 0, 0]],
    "input_lengths": [[3], [1]],
    "request_output_len": [[8], [9]],
}


def rows(*, batch_size: int = 1, values: dict[str, Any] = PROMPT, **options: Any) -> list[EngineRow]:
    defaults: dict[str, Any] = {
        "request_id": "r",
        "requested_outputs": (),
        "limits": LIMITS,
        "max_beam_width": 1,
        "exclude_input_by_default": False,
        "decoupled": True,
        "timeout_us": 0,
    }
    inputs = inputs_of(TENSORRT_LLM, batch_size=batch_size, **values)
    return read_rows(inputs, **{**defaults, **options})


def row(**values: Any) -> EngineRow:
    (only,) = rows(values={**PROMPT, **values})
    return only


def test_a_plain_request_is_one_row_without_indices() -> None:
    only = row()
    assert only.request.request_id == "r"
    assert only.request.prompt_ids == (4, 5, 6)
    assert only.request.sampling.max_tokens == 8
    assert only.request.deadline_s is None
    assert (only.batch_index, only.sequence_index, only.streaming) == (None, None, False)


def test_ids_beyond_the_given_length_are_padding() -> None:
    assert row(input_lengths=2).request.prompt_ids == (4, 5)


def test_every_row_of_a_batch_has_its_own_prompt_values_and_index() -> None:
    first, second = rows(batch_size=2, values={**BATCH, "streaming": [[True], [False]], "seed": [[1], [2]]})
    assert (first.batch_index, second.batch_index) == (0, 1)
    assert (first.request.prompt_ids, second.request.prompt_ids) == ((4, 5, 6), (7,))
    assert (first.request.sampling.max_tokens, second.request.sampling.max_tokens) == (8, 9)
    assert (first.request.sampling.seed, second.request.sampling.seed) == (1, 2)
    assert (first.streaming, second.streaming) == (True, False)


def test_the_prompt_may_not_be_missing_empty_or_shorter_than_said() -> None:
    for values in ({**PROMPT, "input_ids": ()}, {"input_lengths": 1, "request_output_len": 8}):
        with pytest.raises(InvalidArgument, match="input_ids is empty or missing"):
            rows(values=values)
    with pytest.raises(InvalidArgument, match="input_lengths is 4 but input_ids holds 3 ids"):
        row(input_lengths=4)
    for length in (0, -1):
        with pytest.raises(InvalidArgument, match="input_lengths must be from 1"):
            row(input_lengths=length)


def test_the_timeout_counts_from_now_on_the_monotonic_clock() -> None:
    before = time.monotonic()
    (only,) = rows(timeout_us=1_500_000)
    deadline_s = only.request.deadline_s
    assert deadline_s is not None
    assert before + 1.5 <= deadline_s <= time.monotonic() + 1.5


def test_several_sequences_share_the_prompt_and_take_seeds_that_follow_one_another() -> None:
    made = rows(values={**PROMPT, "num_return_sequences": 3, "seed": 2**64 - 2})
    assert [one.sequence_index for one in made] == [0, 1, 2]
    assert [one.request.sampling.seed for one in made] == [2**64 - 2, 2**64 - 1, 0]
    assert {one.request.prompt_ids for one in made} == {(4, 5, 6)}


def test_without_a_seed_the_sequences_stay_free() -> None:
    made = rows(values={**PROMPT, "num_return_sequences": 2})
    assert [one.request.sampling.seed for one in made] == [None, None]


def test_one_sequence_has_no_index() -> None:
    assert row(num_return_sequences=1).sequence_index is None


@pytest.mark.parametrize("count", [0, -1, MAX_RETURN_SEQUENCES + 1])
def test_a_count_of_sequences_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(InvalidArgument, match="num_return_sequences must be from 1 to 64"):
        row(num_return_sequences=count)


@pytest.mark.parametrize("values", [{"streaming": True}, {"num_return_sequences": 2}])
def test_c17_many_responses_need_the_decoupled_profile(values: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=f"{next(iter(values))}.* needs the decoupled profile"):
        rows(values={**PROMPT, **values}, decoupled=False)
    assert rows(values={**PROMPT, "streaming": False, "num_return_sequences": 1}, decoupled=False)


@pytest.mark.parametrize(
    ("streaming", "asked", "default", "echo"),
    [
        (False, None, False, True),
        (False, None, True, False),
        (False, False, True, True),
        (False, True, False, False),
        (True, False, False, False),  # streams never repeat the prompt
    ],
)
def test_the_prompt_is_echoed_as_the_request_or_else_the_model_says(
    streaming: bool, asked: bool | None, default: bool, echo: bool
) -> None:
    values: dict[str, Any] = {**PROMPT, "streaming": streaming}
    if asked is not None:
        values["exclude_input_in_output"] = asked
    (only,) = rows(values=values, exclude_input_by_default=default)
    assert only.echo_prompt is echo


@pytest.mark.parametrize(
    ("stop", "expected"), [({}, False), ({"stop": False}, False), ({"stop": True}, True)]
)
def test_a_stop_request_says_so(stop: dict[str, bool], expected: bool) -> None:
    assert wants_stop(inputs_of(TENSORRT_LLM, **stop)) is expected


def test_a_refusal_of_a_tensor_comes_before_reading_the_rest() -> None:
    with pytest.raises(Unsupported, match="lora_task_id"):
        rows(values={"lora_task_id": 3})


CHUNK = TokenChunk(
    ids=[8, 9],
    log_probs=[-0.5, -0.25],
    finish_reason=FinishReason.LENGTH,
    times=RequestTimes(1.0, 1.5, 2.0, 2.25),
)
EVERYTHING = {
    "return_log_probs": True,
    "return_num_input_tokens": True,
    "return_num_output_tokens": True,
    "return_perf_metrics": True,
    "exclude_input_in_output": True,
}


def test_every_output_has_the_contracts_dtype_and_number_of_dimensions() -> None:
    batch = {name: [[value], [value]] for name, value in EVERYTHING.items()}
    made = rows(batch_size=2, values={**BATCH, **batch, "num_return_sequences": [[2], [2]]})
    assert len(made) == 4
    encoded = made[0].encode(CHUNK, -1.5)
    by_name = {spec.name: spec for spec in TENSORRT_LLM.outputs}
    for name, array in encoded.items():
        spec = by_name[name]
        assert array.dtype == np.dtype(spec.dtype.numpy), name
        assert array.ndim == 1 + len(spec.dims), name
        sizes = zip(spec.dims, array.shape[1:], strict=True)
        assert all(declared in (-1, size) for declared, size in sizes), name
    logits_and_blocks = {
        name for name in by_name if "logits" in name or "kv_cache" in name or "draft" in name
    }
    assert set(by_name) - set(encoded) == {*logits_and_blocks, "context_phase_params", "acceptance_rate"}


def test_a_chunk_is_written_with_beam_width_1() -> None:
    encoded = row(**EVERYTHING, num_return_sequences=1).encode(CHUNK, -1.5)
    assert {name: array.tolist() for name, array in encoded.items()} == {
        "output_ids": [[[8, 9]]],
        "sequence_length": [[2]],
        "cum_log_probs": [[-1.5]],
        "output_log_probs": [[[-0.5, -0.25]]],
        "num_input_tokens": [[3]],
        "num_output_tokens": [[2]],
        "finish_reason": [[b"length"]],
        "arrival_time_ns": [[1_000_000_000]],
        "first_scheduled_time_ns": [[1_500_000_000]],
        "first_token_time_ns": [[2_000_000_000]],
        "last_token_time_ns": [[2_250_000_000]],
    }


def test_the_indices_of_row_and_sequence_are_written() -> None:
    made = rows(batch_size=2, values={**BATCH, "num_return_sequences": [[1], [2]]})
    written = [
        {name: one.encode(CHUNK, 0.0)[name].tolist() for name in ("batch_index", "sequence_index")
         if name in one.encode(CHUNK, 0.0)}
        for one in made
    ]  # fmt: skip
    assert written == [
        {"batch_index": [[0]]},
        {"batch_index": [[1]], "sequence_index": [[0]]},
        {"batch_index": [[1]], "sequence_index": [[1]]},
    ]


def test_what_nobody_asked_for_stays_absent() -> None:
    assert set(row().encode(CHUNK, 0.0)) == {"output_ids", "sequence_length", "finish_reason"}
    middle = TokenChunk([8], [-0.5])
    assert set(row().encode(middle, 0.0)) == {"output_ids", "sequence_length"}


def test_only_the_requested_outputs_are_sent() -> None:
    (only,) = rows(values={**PROMPT, **EVERYTHING}, requested_outputs=["output_ids", "first_token_time_ns"])
    assert set(only.encode(CHUNK, 0.0)) == {"output_ids", "first_token_time_ns"}
    (without_flag,) = rows(requested_outputs=["sequence_length", "num_input_tokens"])
    assert set(without_flag.encode(CHUNK, 0.0)) == {"sequence_length"}


def test_an_echoed_prompt_counts_as_output() -> None:
    encoded = row(return_num_output_tokens=True).encode(CHUNK, 0.0)
    assert encoded["output_ids"].tolist() == [[[4, 5, 6, 8, 9]]]
    assert encoded["sequence_length"].tolist() == [[5]]
    assert encoded["num_output_tokens"].tolist() == [[5]]


def test_e05_an_answer_of_no_tokens_is_an_empty_row() -> None:
    nothing = TokenChunk([], [], FinishReason.CANCELLED)
    encoded = row(**EVERYTHING).encode(nothing, 0.0)
    assert encoded["output_ids"].shape == (1, 1, 0)
    assert encoded["output_log_probs"].shape == (1, 1, 0)
    assert encoded["sequence_length"].tolist() == [[0]]
    assert encoded["finish_reason"].tolist() == [[b"cancelled"]]


def test_times_that_were_not_reached_stay_absent() -> None:
    chunk = TokenChunk([], [], FinishReason.CANCELLED, RequestTimes(1.0, 1.0, None, None))
    encoded = row(return_perf_metrics=True).encode(chunk, 0.0)
    assert {name for name in encoded if name.endswith("_ns")} == {
        "arrival_time_ns",
        "first_scheduled_time_ns",
    }


def test_rows_may_differ_in_what_they_return() -> None:
    first, second = rows(batch_size=2, values={**BATCH, "return_log_probs": [[True], [False]]})
    assert "cum_log_probs" in first.encode(CHUNK, 0.0)
    assert "cum_log_probs" not in second.encode(CHUNK, 0.0)


def test_c02_tensors_that_disagree_about_the_batch_are_refused() -> None:
    values = {**BATCH, "temperature": [[1.0]]}
    with pytest.raises(InvalidArgument, match="temperature has shape"):
        rows(batch_size=2, values=values)


def test_scalars_arrive_with_or_without_their_inner_dimension() -> None:
    flat = {
        "input_lengths": np.array([3], dtype=np.int32),
        "request_output_len": np.array([8], dtype=np.int32),
    }
    tensors = {**inputs_of(TENSORRT_LLM, input_ids=(4, 5, 6)).tensors, **flat}
    (only,) = read_rows(
        TensorInputs(tensors, 1), request_id="", requested_outputs=(), limits=LIMITS, max_beam_width=1,
        exclude_input_by_default=True, decoupled=True, timeout_us=0,
    )  # fmt: skip
    assert only.request.prompt_ids == (4, 5, 6)
