"""Responses are put together: texts, counts, probabilities, times."""

from __future__ import annotations

import struct

import pytest
from tritonclient.grpc import service_pb2 as pb

from naiad_client import NaiadError
from naiad_client.response import Assembly
from tests.unit.client.scripted import add_output, delta, final


def test_deltas_are_joined_and_numbered_and_counted() -> None:
    assembly = Assembly()
    chunks = [
        assembly.add(delta("Hé", tokens=2).infer_response, 10.5),
        assembly.add(delta("llo 🌍", tokens=3).infer_response, 11.0),
        assembly.add(delta("", tokens=0, finish="stop").infer_response, 12.0),
        assembly.add(final().infer_response, 12.1),
    ]
    assert [chunk and chunk.index for chunk in chunks] == [0, 1, 2, None]
    assert [chunk and chunk.finish_reason for chunk in chunks] == [None, None, "stop", None]
    whole = assembly.completion(started_s=10.0, ended_s=12.0)
    assert whole.text == "Héllo 🌍"
    assert whole.finish_reason == "stop"
    assert (whole.usage.num_input_tokens, whole.usage.num_output_tokens) == (5, 5)


def test_times_follow_their_definitions() -> None:
    assembly = Assembly()
    for at_s, tokens in ((10.5, 2), (11.0, 1), (11.5, 1)):
        assembly.add(delta("x", tokens=tokens).infer_response, at_s)
    assembly.add(delta("", tokens=0, finish="length").infer_response, 99.0)
    times = assembly.completion(started_s=10.0, ended_s=12.0).timings
    assert times.ttft_s == pytest.approx(0.5)
    assert times.mean_itl_s == pytest.approx(0.5), "(11.5 - 10.5) / the 2 tokens after the first piece"
    assert times.total_s == pytest.approx(2.0)
    assert times.tokens_per_s == pytest.approx(2.0)


def test_an_answer_in_one_piece_has_no_time_between_tokens() -> None:
    assembly = Assembly()
    assembly.add(delta("all", tokens=9).infer_response, 11.0)
    assert assembly.completion(started_s=10.0, ended_s=11.0).timings.mean_itl_s is None


def test_an_answer_without_tokens_is_an_answer() -> None:
    assembly = Assembly()
    assembly.add(delta("", tokens=0, finish="stop").infer_response, 11.0)
    whole = assembly.completion(started_s=10.0, ended_s=11.0)
    assert (whole.text, whole.finish_reason, whole.usage.num_output_tokens) == ("", "stop", 0)
    assert whole.timings.ttft_s is None


def test_counts_the_server_does_not_give_are_unknown_not_zero() -> None:
    assembly = Assembly()
    assembly.add(delta("x", tokens=None, prompt_tokens=None).infer_response, 11.0)
    whole = assembly.completion(started_s=10.0, ended_s=11.0)
    assert (whole.usage.num_input_tokens, whole.usage.num_output_tokens) == (None, None)
    assert whole.timings.tokens_per_s is None
    assert whole.timings.ttft_s == pytest.approx(1.0)
    assert whole.finish_reason is None


def test_the_input_is_counted_once_although_every_response_states_it() -> None:
    assembly = Assembly()
    for _ in range(3):
        assembly.add(delta("x", prompt_tokens=7).infer_response, 11.0)
    assembly.add(delta("", prompt_tokens=None).infer_response, 11.0)
    assert assembly.completion(started_s=10.0, ended_s=11.0).usage.num_input_tokens == 7


def test_log_probs_are_per_chunk_and_joined() -> None:
    assembly = Assembly()
    first = assembly.add(delta("a", log_probs=[-0.5, -1.0]).infer_response, 11.0)
    assembly.add(delta("b", log_probs=[-0.25]).infer_response, 11.0)
    assert first is not None
    assert first.log_probs == (-0.5, -1.0)
    whole = assembly.completion(started_s=10.0, ended_s=11.0)
    assert whole.log_probs == (-0.5, -1.0, -0.25)
    assert whole.cum_log_prob == -0.25, "the last one the server gave"


@pytest.mark.parametrize(
    ("name", "datatype", "raw"),
    [
        ("text_output", "BYTES", b"\xff\0\0\0abc"),
        ("text_output", "BYTES", b"\x01"),
        ("text_output", "INT32", b"\0\0\0\0"),
        ("num_output_tokens", "INT64", b"\0" * 8),
        ("num_output_tokens", "INT32", b"\0" * 5),
        ("output_log_probs", "FP16", b"\0\0"),
    ],
)
def test_a_tensor_that_breaks_the_contract_is_an_error_that_names_it(
    name: str, datatype: str, raw: bytes
) -> None:
    response = pb.ModelInferResponse()
    add_output(response, name, datatype, [1], raw)
    with pytest.raises(NaiadError, match=name):
        Assembly().add(response, 1.0)


def test_outputs_without_their_contents_are_an_error() -> None:
    response = delta("x").infer_response
    del response.raw_output_contents[-1]
    with pytest.raises(NaiadError, match="malformed"):
        Assembly().add(response, 1.0)


def test_unsigned_counts_and_cut_characters_are_accepted() -> None:
    response = pb.ModelInferResponse()
    add_output(response, "text_output", "BYTES", [1], b"\x02\0\0\0\xf0\x9f")
    add_output(response, "num_output_tokens", "UINT32", [1, 1], struct.pack("<I", 3))
    chunk = Assembly().add(response, 1.0)
    assert chunk is not None
    assert (chunk.text, chunk.num_output_tokens) == ("\ufffd", 3)
