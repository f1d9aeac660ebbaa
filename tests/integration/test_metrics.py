"""Triton's metrics endpoint carries NVIDIA's families and Naiad's own (I01, I03)."""

from __future__ import annotations

from typing import Any

import pytest

from naiad.telemetry.families import ENGINE_FAMILIES, FAILURES, Kind
from tests.harness.server import LiveServer, wait_until
from tests.harness.triton_request import TritonStream, flag, infer_request, ints, text


def request(**more: Any) -> Any:
    return infer_request("tensorrt_llm_bls", {"text_input": text("a b c"), "max_tokens": ints(5), **more})


@pytest.mark.parametrize("family", ENGINE_FAMILIES, ids=lambda family: family.name)
def test_every_family_is_there_with_its_labels(synthetic: LiveServer, family) -> None:
    name = family.name + ("_count" if family.kind is Kind.HISTOGRAM else "")
    for value in family.values or (None,):
        labels = {"model": "tensorrt_llm", "version": "1"}
        if value is not None:
            labels[family.label] = value
        assert synthetic.metric(name, **labels) >= 0


def test_a_request_fills_the_histograms(synthetic: LiveServer) -> None:
    names = {
        ("naiad_time_to_first_token_seconds_count", "tensorrt_llm"): 1,
        ("naiad_time_to_first_token_seconds_count", "tensorrt_llm_bls"): 1,
        ("naiad_queue_time_seconds_count", "tensorrt_llm"): 1,
        ("naiad_inter_token_latency_seconds_count", "tensorrt_llm"): 4,
        ("nv_llm_output_token_len_count", "tensorrt_llm"): 1,
        ("nv_llm_output_token_len_sum", "tensorrt_llm"): 5,
        ("nv_llm_input_token_len_sum", "tensorrt_llm"): 3,
    }
    before = {key: synthetic.metric(key[0], model=key[1]) for key in names}
    with TritonStream(synthetic.grpc) as stream:
        stream.ask(request(stream=flag()))

    def grown() -> bool:
        return all(
            synthetic.metric(key[0], model=key[1]) - before[key] == step for key, step in names.items()
        )

    wait_until(grown, 5, "each histogram grew by exactly this request")
    assert synthetic.active() == 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"temperature": None}, "INVALID_ARGUMENT"),
        ({"max_tokens": ints(9000)}, "PROMPT_TOO_LONG"),
        ({"beam_width": ints(2)}, "INVALID_ARGUMENT"),
        ({"lora_task_id": None}, "UNSUPPORTED"),
    ],
    ids=["temperature", "too-long", "beams", "lora"],
)
def test_a_failure_is_counted_once_by_its_reason(synthetic: LiveServer, more, reason: str) -> None:
    import numpy as np

    bad = {"temperature": np.array([[np.nan]], np.float32), "lora_task_id": np.array([[1]], np.uint64)}
    tensors = {name: bad[name] if value is None else value for name, value in more.items()}

    def count(which: str) -> float:
        return synthetic.metric(FAILURES.name, model="tensorrt_llm_bls", reason=which)

    before = {which: count(which) for which in FAILURES.values}
    with TritonStream(synthetic.grpc) as stream:
        assert stream.ask(request(**tensors)).error is not None
    wait_until(lambda: count(reason) == before[reason] + 1, 5, "the failure is counted")
    assert all(count(which) == before[which] for which in FAILURES.values if which != reason)
