"""Memory stays flat over many requests, once the KV cache's pages have been touched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.repository import write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.triton_request import TritonStream, flag, infer_request, ints, text

MODELS = ("tensorrt_llm", "tensorrt_llm_bls")
CONCURRENCY = 32


def run_requests(server: LiveServer, numbers: range) -> None:
    """Send one short request a number; distinct prompts, so the prefix cache fills as it can."""

    def one(number: int) -> None:
        tensors = {"text_input": text(f"{number} bottles of"), "max_tokens": ints(2), "stream": flag()}
        reply = stream.ask(infer_request("tensorrt_llm_bls", tensors), timeout_s=120)
        assert reply.error is None
        assert reply.finals == 1

    with TritonStream(server.grpc) as stream, ThreadPoolExecutor(CONCURRENCY) as threads:
        list(threads.map(one, numbers))
    wait_until(lambda: server.active() == 0, 5, "the engine is idle")


def resident_mb(server: LiveServer) -> dict[str, float]:
    return {model: server.stub(model).memory_info().rss / 1e6 for model in MODELS}


@pytest.mark.timeout(400)
def test_two_thousand_requests_leave_no_memory_behind(tmp_path: Path) -> None:
    """The KV cache is small (2,048 tokens, 94 MB) and full after 400 requests: what grows later is a leak."""
    engine = {"engine": "openvino", "enable_chunked_context": True, "max_tokens_in_paged_kv_cache": 2048}
    repository = write_repository(tmp_path / "models", tensorrt_llm=engine)
    with serving(repository, tmp_path / "artifacts") as server:
        run_requests(server, range(400))
        warm = resident_mb(server)
        run_requests(server, range(400, 2000))
        end = resident_mb(server)
    for model in MODELS:
        assert end[model] - warm[model] < 25, f"{model}: {warm[model]:.0f} MB grew to {end[model]:.0f} MB"
