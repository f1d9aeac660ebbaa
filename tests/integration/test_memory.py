"""Memory stays flat over many requests, once the KV cache's pages have been touched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.harness.repository import write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.triton_request import TritonStream, flag, infer_request, ints, text

MODELS = ("tensorrt_llm", "tensorrt_llm_bls")
CONCURRENCY = 8


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
    """Of each model's process and its children: the engine has a process of its own below its model's."""

    def family(model: str) -> list[psutil.Process]:
        stub = server.stub(model)
        return [stub, *stub.children(recursive=True)]

    return {model: sum(process.memory_info().rss for process in family(model)) / 1e6 for model in MODELS}


@pytest.mark.timeout(400)
def test_two_thousand_requests_leave_no_memory_behind(tmp_path: Path) -> None:
    """Three things fill up once and are no leak: the KV cache, kernels for each shape of a step, and arenas.

    So the cache is small (2,048 tokens, 94 MB) and steps have few shapes: with 256 tokens a step the engine's
    process grows by some 100 MB over the first 3,000 requests, ever slower, in a bare loop as well.
    """
    engine = {
        "engine": "openvino",
        "enable_chunked_context": True,
        "max_tokens_in_paged_kv_cache": 2048,
        "max_num_tokens": 8,
        "max_num_sequences": 4,
    }
    repository = write_repository(tmp_path / "models", tensorrt_llm=engine)
    with serving(repository, tmp_path / "artifacts") as server:
        run_requests(server, range(500))
        warm = resident_mb(server)
        run_requests(server, range(500, 2000))
        end = resident_mb(server)
    for model in MODELS:
        assert end[model] - warm[model] < 10, f"{model}: {warm[model]:.0f} MB grew to {end[model]:.0f} MB"
