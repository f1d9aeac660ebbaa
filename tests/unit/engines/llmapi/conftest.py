"""An engine over the double of TensorRT-LLM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.engines import NullObserver, StepLoop
from naiad.engines.base import EngineLimits
from naiad.engines.llmapi import LlmApiStepper
from naiad.engines.llmapi_settings import LlmApiSettings
from tests.harness import tensorrt_llm_double

LIMITS = EngineLimits(vocab_size=100, max_seq_len=500, kv_capacity_tokens=500, end_ids=frozenset({0}))


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorrt_llm_double.install(monkeypatch)


@pytest.fixture
def engine(tmp_path: Path, double: None) -> Iterator[StepLoop]:
    loop = StepLoop(
        LlmApiStepper(LlmApiSettings(tmp_path, {"max_batch_size": 4}), LIMITS),
        max_waiting=8,
        poll_period_s=0.01,
        max_chunks_per_s=0,
        tokens_per_chunk=1,
        observer=NullObserver(),
        after_turn=None,
    )
    try:
        yield loop
    finally:
        loop.close()
