"""Calling the engine model from a model: what is sent, and how its errors come back."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import EngineUnavailable, Overloaded, format_error
from naiad.triton.bls import EngineModel
from tests.harness.fake_triton import FakeServer, InferenceRequest
from tests.harness.fake_triton_data import InferenceResponse, TritonError, TritonModelException
from tests.harness.scripted_engine import EngineCall, Script, ScriptedEngine, tokens
from tests.unit.triton.conftest import LogLines

Outputs = Iterator[Mapping[str, Any]]


def call(**tensors: Any) -> Iterator[dict[str, Any]]:
    return EngineModel("tensorrt_llm").generate(tensors, ("output_ids",), "id", 7)


def test_the_call_is_made_when_the_first_response_is_asked_for(
    engine: Callable[[Script], ScriptedEngine],
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens([1, 2])
        yield tokens([3], "stop")

    scripted = engine(script)
    responses = call(input_ids=np.array([[5]], dtype=np.int32))
    assert scripted.calls == []
    assert [response["output_ids"].tolist() for response in responses] == [[[[1, 2]]], [[[3]]]]
    (made,) = scripted.calls
    assert (made.request_id, made.requested, made.timeout_us) == ("id", ["output_ids"], 7)
    assert made.tensors["input_ids"].tolist() == [[5]]


def test_an_error_response_ends_the_call_with_the_engines_own_error(triton: FakeServer) -> None:
    def busy(_: InferenceRequest) -> Iterator[InferenceResponse]:
        text = f"in ensemble 'x', {format_error(Overloaded('busy'))}"
        yield InferenceResponse(error=TritonError(text, TritonError.UNAVAILABLE))

    triton.models["tensorrt_llm"] = busy
    with pytest.raises(Overloaded) as caught:
        list(call())
    assert caught.value.message == "busy"


def test_an_error_in_other_words_means_that_the_engine_is_unavailable(
    triton: FakeServer, log: LogLines
) -> None:
    def gone(_: InferenceRequest) -> Iterator[InferenceResponse]:
        yield from ()
        raise TritonModelException("Stub process is not healthy.")

    triton.models["tensorrt_llm"] = gone
    with pytest.raises(EngineUnavailable, match="model tensorrt_llm could not be called; retry later"):
        list(call())
    assert log.about("Stub process is not healthy.")


class Responses:
    """What a call returns; unlike a generator, it tells whether anybody still holds it."""

    def __init__(self) -> None:
        self._left = [InferenceResponse()]

    def __iter__(self) -> Responses:
        return self

    def __next__(self) -> InferenceResponse:
        if not self._left:
            raise StopIteration
        return self._left.pop()


def test_an_ended_call_is_kept_for_a_while_so_that_the_stub_does_not_free_its_objects(
    triton: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Responses]] = []

    def exec_(self: InferenceRequest, decoupled: bool = False) -> Responses:
        responses = Responses()
        made.append(weakref.ref(responses))
        return responses

    monkeypatch.setattr(InferenceRequest, "exec", exec_)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    model = EngineModel("tensorrt_llm")
    for later in (0, 9, 11):
        now = 100.0 + later
        list(model.generate({}, (), "id", 0))
    assert [kept() is not None for kept in made] == [False, True, True]


def test_a_stop_request_has_the_contracts_form(triton: FakeServer) -> None:
    seen: list[InferenceRequest] = []

    def stopped(request: InferenceRequest) -> Iterator[InferenceResponse]:
        seen.append(request)
        yield InferenceResponse()

    triton.models["tensorrt_llm"] = stopped
    EngineModel("tensorrt_llm").stop("victim")
    (request,) = seen
    assert request.request_id() == "victim"
    sent = request.tensors()
    assert {name: array.tolist() for name, array in sent.items()} == {
        "input_ids": [[0]], "input_lengths": [[1]], "request_output_len": [[0]], "stop": [[True]],
    }  # fmt: skip
    for name, array in sent.items():
        assert array.dtype == np.dtype(TENSORRT_LLM.input(name).dtype.numpy)
