"""SIGKILL of each model's process: nobody hangs, health is honest at once, service comes back by itself."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.harness.repository import ROOT, write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.triton_request import TritonStream, flag, infer_request, ints, text

IDLE_LIMIT_S = 2.0


def request(tokens: int, model: str = "tensorrt_llm_bls"):
    return infer_request(model, {"text_input": text("one two"), "max_tokens": ints(tokens), "stream": flag()})


def answers(server: LiveServer) -> bool:
    try:
        with TritonStream(server.grpc) as stream:
            return stream.ask(request(2), timeout_s=5).finals == 1
    except grpc.RpcError:
        return False


@pytest.mark.parametrize("victim", ["preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls"])
def test_b01_b02_b04_a_killed_process_hangs_nobody_and_heals(tmp_path: Path, victim: str) -> None:
    repository = write_repository(
        tmp_path / "models",
        tensorrt_llm={"synthetic_step_ms": 20},
        tensorrt_llm_bls={"idle_timeout_ms": int(IDLE_LIMIT_S * 1000)},
    )
    with serving(repository, tmp_path / "artifacts") as server:

        def endless(model: str) -> float:
            """Stream until something ends it; return when."""
            try:
                with TritonStream(server.grpc) as stream:
                    reply = stream.ask(request(8000, model), timeout_s=60)
                    assert reply.error is not None, "an endless stream ended without an error"
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            return time.monotonic()

        models = ["tensorrt_llm_bls", "tensorrt_llm_bls", "tensorrt_llm_bls", "ensemble", "ensemble"]
        with ThreadPoolExecutor(len(models)) as threads:
            ends = [threads.submit(endless, model) for model in models]
            wait_until(lambda: server.active() == len(models), 10, "all streams run")
            server.stub(victim).kill()
            killed_s = time.monotonic()
            wait_until(lambda: not server.ready, 1, "readiness is false")
            last_s = max(end.result(timeout=30) for end in ends)
        # The supervisor gives live requests 3 s and then ends the server with everything in it.
        assert last_s - killed_s < IDLE_LIMIT_S + 6
        wait_until(lambda: server.ready and answers(server), 30, "a new request is answered")
        assert time.monotonic() - killed_s < 30


def test_b01_the_client_of_a_dead_engine_gets_a_typed_partial_error_at_once(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models", tensorrt_llm={"synthetic_step_ms": 20})
    with serving(repository, tmp_path / "artifacts") as server, TritonStream(server.grpc) as stream:
        call = stream.open(request(8000))
        for _, _ in zip(range(5), call, strict=False):
            pass
        server.stub("tensorrt_llm").kill()
        killed_s = time.monotonic()
        error = next(message.error_message for message in call if message.error_message)
        assert time.monotonic() - killed_s < 2
    assert "[ENGINE_UNAVAILABLE]" in error
    assert "partial answer was delivered" in error


def test_b03_a_model_that_cannot_load_fails_the_start_and_names_the_cause(tmp_path: Path) -> None:
    repository = write_repository(
        tmp_path / "models", tensorrt_llm_bls={"tokenizer_dir": str(tmp_path / "nowhere")}
    )
    with pytest.raises(Exception, match="nowhere"), serving(repository, tmp_path / "artifacts"):
        pass


def test_b13_a_drain_refuses_new_requests_and_lets_live_ones_end(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models", tensorrt_llm={"synthetic_step_ms": 20})
    with serving(repository, tmp_path / "artifacts") as server, TritonStream(server.grpc) as stream:
        with ThreadPoolExecutor(10) as threads:
            live = [threads.submit(stream.ask, request(100)) for _ in range(10)]
            wait_until(lambda: server.active() == 10, 10, "ten streams run")
            server.supervisor.request_stop()

            def refused() -> bool:
                return "[DRAINING]" in (stream.ask(request(2)).error or "")

            wait_until(refused, 2, "a new request is refused as draining")
            replies = [reply.result(timeout=30) for reply in live]
        assert [reply.finish_reason for reply in replies] == ["length"] * 10


def test_a_killed_engine_process_is_replaced_without_a_new_server(tmp_path: Path) -> None:
    with (
        serving(ROOT / "model_repository", tmp_path / "artifacts") as server,
        TritonStream(server.grpc) as stream,
    ):
        model = server.stub("tensorrt_llm")
        (engine,) = model.children()
        call = stream.open(request(4000))
        for _, _ in zip(range(3), call, strict=False):
            pass
        engine.kill()
        killed_s = time.monotonic()
        error = next(message.error_message for message in call if message.error_message)
        assert "[ENGINE_UNAVAILABLE]" in error
        assert time.monotonic() - killed_s < 10  # told at once, not by a deadline
        wait_until(lambda: answers(server), 30, "a new request is answered")
        assert server.stub("tensorrt_llm") == model
        assert server.ready
