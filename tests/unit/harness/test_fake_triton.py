"""The fake must refuse what Triton refuses: each rule once."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.harness.fake_triton import FakeServer, InferenceRequest, install
from tests.harness.fake_triton_data import InferenceResponse, Tensor, TritonError, TritonModelException
from tests.harness.fake_triton_metrics import MetricFamily

FINAL = 1
REFUSED = TritonModelException


@pytest.fixture
def server() -> FakeServer:
    return FakeServer().connect()


def response(**tensors: Any) -> InferenceResponse:
    return InferenceResponse([Tensor(name, array) for name, array in tensors.items()])


def test_install_puts_one_module_into_the_import_system() -> None:
    module = install()
    assert sys.modules["triton_python_backend_utils"] is module
    assert install() is module
    assert module.TRITONSERVER_RESPONSE_COMPLETE_FINAL == FINAL
    assert module.MetricFamily is MetricFamily


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3), dtype=np.int32).T,
        np.zeros((4,), dtype=np.int32)[::2],
        np.zeros((2,), dtype=np.complex64),
        np.array(["text"]),
        np.array([1, b"x"], dtype=np.object_),
    ],
    ids=["transposed", "strided", "complex", "fixed-width text", "mixed objects"],
)
def test_a_tensor_refuses_arrays_that_triton_cannot_send_as_they_are(array: Any) -> None:
    with pytest.raises(REFUSED):
        Tensor("x", array)


def test_a_tensor_refuses_what_is_no_array_and_an_empty_name() -> None:
    with pytest.raises(TypeError):
        Tensor("x", [1, 2])  # type: ignore[arg-type]
    with pytest.raises(REFUSED):
        Tensor("", np.zeros(1, dtype=np.int32))


def test_the_receiver_sees_the_values_of_the_moment_of_sending_and_text_as_bytes(server: FakeServer) -> None:
    request = server.request({})
    ids = np.array([[1, 2]], dtype=np.int32)
    request.get_response_sender().send(response(ids=ids, text=np.array(["é", b"\x00"], dtype=np.object_)))
    ids[:] = 9
    assert request.sent[0].tensors["ids"].tolist() == [[1, 2]]
    assert request.sent[0].tensors["text"].tolist() == ["é".encode(), b"\x00"]
    request.get_response_sender().send(flags=FINAL)


@pytest.mark.parametrize("flags", [2, 3, -1])
def test_a_sender_refuses_unknown_flags(server: FakeServer, flags: int) -> None:
    with pytest.raises(REFUSED, match="Unsupported flag"):
        server.request({}).get_response_sender().send(response(), flags=flags)


def test_a_sender_refuses_nothing_without_the_final_flag(server: FakeServer) -> None:
    with pytest.raises(REFUSED, match="must be provided"):
        server.request({}).get_response_sender().send()


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_sender_refuses_anything_after_the_final_flag(server: FakeServer, decoupled: bool) -> None:
    request = server.request({}, decoupled=decoupled)
    request.get_response_sender().send(response(), flags=FINAL)
    for late in (response(), None):
        with pytest.raises(REFUSED):
            request.get_response_sender().send(late, flags=FINAL)
    assert len(request.sent) == 1


def test_a_sender_of_a_non_decoupled_model_takes_one_response_and_no_bare_end(server: FakeServer) -> None:
    request = server.request({}, decoupled=False)
    with pytest.raises(REFUSED, match="complete final before sending a response"):
        request.get_response_sender().send(flags=FINAL)
    request.get_response_sender().send(response())
    with pytest.raises(REFUSED, match="more than one response"):
        request.get_response_sender().send(response())
    request.get_response_sender().send(flags=FINAL)
    assert request.ended


def test_a_send_without_the_final_flag_that_fails_leaves_the_request_open(server: FakeServer) -> None:
    def full(_: object) -> None:
        raise REFUSED("no shared memory")

    request = server.request({}, before_send=full)
    with pytest.raises(REFUSED, match="no shared memory"):
        request.get_response_sender().send(response())
    request.before_send = None
    request.get_response_sender().send(response(), flags=FINAL)
    assert (len(request.sent), request.ended) == (1, True)


def test_a_final_send_that_fails_closes_the_sender_without_an_end(server: FakeServer) -> None:
    def full(_: object) -> None:
        raise REFUSED("no shared memory")

    request = server.request({}, before_send=full)
    with pytest.raises(REFUSED, match="no shared memory"):
        request.get_response_sender().send(response(), flags=FINAL)
    request.before_send = None
    with pytest.raises(REFUSED, match="has been closed"):
        request.get_response_sender().send(response(), flags=FINAL)
    assert not request.ended


def test_a_response_refuses_one_name_twice_and_things_that_are_no_tensors() -> None:
    one = Tensor("x", np.zeros(1, dtype=np.int32))
    with pytest.raises(REFUSED):
        InferenceResponse([one, one])
    with pytest.raises(TypeError):
        InferenceResponse([np.zeros(1)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        InferenceResponse([], "text")  # type: ignore[arg-type]


def test_an_error_has_one_of_tritons_codes() -> None:
    assert TritonError("late", TritonError.CANCELLED).code() == TritonError.CANCELLED
    assert TritonError("broken").code() == TritonError.INTERNAL
    with pytest.raises(REFUSED):
        TritonError("?", 8)
    with pytest.raises(TypeError):
        TritonError(3)  # type: ignore[arg-type]


def test_an_error_reaches_the_client_with_its_code(server: FakeServer) -> None:
    request = server.request({})
    error = TritonError("no such thing", TritonError.NOT_FOUND)
    request.get_response_sender().send(InferenceResponse(error=error), flags=FINAL)
    (message,) = request.wait_ended()
    assert (message.error, message.code, message.final) == ("no such thing", TritonError.NOT_FOUND, True)


def test_a_request_shows_what_it_was_made_with_and_its_cancel(server: FakeServer) -> None:
    request = server.request(
        {"n": np.ones((1, 1), dtype=np.int32)},
        outputs=["y"],
        request_id="a",
        timeout_us=7,
        parameters={"priority": 1},
    )
    (tensor,) = request.inputs()
    assert (tensor.name(), tensor.as_numpy().tolist()) == ("n", [[1]])
    assert (request.request_id(), request.requested_output_names(), request.timeout()) == ("a", ["y"], 7)
    assert json.loads(request.parameters()) == {"priority": 1}
    assert not request.get_response_sender().is_cancelled()
    request.cancel()
    assert request.get_response_sender().is_cancelled()
    assert server.requests == [request]


def test_waiting_for_an_end_that_does_not_come_times_out(server: FakeServer) -> None:
    with pytest.raises(TimeoutError):
        server.request({}).wait_ended(within_s=0.01)


def test_waiting_ends_when_another_thread_sends(server: FakeServer) -> None:
    request = server.request({})
    thread = threading.Thread(target=request.get_response_sender().send, kwargs={"flags": FINAL})
    thread.start()
    (message,) = request.wait_ended()
    thread.join()
    assert message.empty


@pytest.mark.parametrize(
    "arguments",
    [
        {"timeout": -1},
        {"timeout": 1.5},
        {"request_id": 3},
        {"requested_output_names": [b"x"]},
        {"inputs": [3]},
    ],
)
def test_a_call_of_another_model_refuses_wrong_types(server: FakeServer, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        InferenceRequest(model_name="m", **arguments)


def test_a_call_of_an_unknown_model_fails(server: FakeServer) -> None:
    with pytest.raises(REFUSED, match="unknown model 'm'"):
        InferenceRequest(model_name="m").exec(decoupled=True)


def test_a_call_iterates_over_what_the_model_answers(server: FakeServer) -> None:
    def double(request: InferenceRequest) -> Iterator[InferenceResponse]:
        yield response(y=request.tensors()["x"] * 2)
        yield InferenceResponse()

    server.models["double"] = double
    call = InferenceRequest(model_name="double", inputs=[Tensor("x", np.array([2], dtype=np.int32))])
    first, last = call.exec(decoupled=True)
    assert first.output_tensors()[0].as_numpy().tolist() == [4]
    assert last.output_tensors() == []


def test_a_delivered_request_cannot_be_executed(server: FakeServer) -> None:
    with pytest.raises(REFUSED):
        server.request({}).exec(decoupled=True)


def test_metrics_keep_what_they_are_told(server: FakeServer) -> None:
    counter = MetricFamily("c", "counts", MetricFamily.COUNTER)
    histogram = MetricFamily("h", "times", MetricFamily.HISTOGRAM)
    gauge = MetricFamily("g", "level", MetricFamily.GAUGE)
    counter.Metric(labels={"model": "a"}).increment(2)
    gauge.Metric(labels={"model": "a"}).set(-1.5)
    histogram.Metric(labels={"model": "a"}, buckets=[0.1, 1.0]).observe(0.5)
    assert server.metric("c", model="a").value() == 2
    assert server.metric("g").value() == -1.5
    assert server.metric("h").observations == [0.5]


@pytest.mark.parametrize(
    ("kind", "operation", "value"),
    [
        ("COUNTER", "increment", -1),
        ("COUNTER", "set", 1),
        ("COUNTER", "observe", 1),
        ("GAUGE", "observe", 1),
        ("HISTOGRAM", "set", 1),
        ("HISTOGRAM", "increment", 1),
    ],
)
def test_a_metric_refuses_operations_of_other_kinds(
    server: FakeServer, kind: str, operation: str, value: float
) -> None:
    family = MetricFamily("f", "a family", getattr(MetricFamily, kind))
    metric = family.Metric(labels={}, buckets=[1.0] if kind == "HISTOGRAM" else None)
    with pytest.raises(REFUSED):
        getattr(metric, operation)(value)


@pytest.mark.parametrize("buckets", [None, [], [1.0, 1.0], [2.0, 1.0], [1.0, float("inf")], (1.0,)])
def test_a_histogram_refuses_missing_or_unsorted_buckets(server: FakeServer, buckets: Any) -> None:
    family = MetricFamily("h", "times", MetricFamily.HISTOGRAM)
    with pytest.raises(REFUSED):
        family.Metric(labels={}, buckets=buckets)


def test_only_histograms_take_buckets(server: FakeServer) -> None:
    family = MetricFamily("g", "level", MetricFamily.GAUGE)
    with pytest.raises(REFUSED, match="Unexpected buckets"):
        family.Metric(labels={}, buckets=[1.0])


def test_metrics_of_a_family_share_their_label_names(server: FakeServer) -> None:
    family = MetricFamily("g", "level", MetricFamily.GAUGE)
    family.Metric(labels={"model": "a"})
    with pytest.raises(REFUSED, match="label names"):
        family.Metric(labels={"version": "1"})
    with pytest.raises(REFUSED, match="must be strings"):
        family.Metric(labels={"model": 1})  # type: ignore[dict-item]


def test_a_family_name_has_one_kind(server: FakeServer) -> None:
    family = MetricFamily("f", "a family", MetricFamily.GAUGE)
    with pytest.raises(REFUSED, match="another kind"):
        MetricFamily("f", "a family", MetricFamily.COUNTER)
    assert server.families["f"] is family


def test_a_metric_is_useless_once_its_family_was_dropped(server: FakeServer) -> None:
    metric = MetricFamily("g", "level", MetricFamily.GAUGE).Metric(labels={})
    gc.collect()
    with pytest.raises(REFUSED, match="has been deleted"):
        metric.set(1)
    assert "g" not in server.families
