"""An engine that lives but says nothing (D12): callers are told which silence it was, and it may come back.

It is slow rather than frozen: Triton 2.51 ends a stub that does not answer its health checks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from naiad.server.config import CanaryPolicy
from tests.harness.prompts import text_inputs
from tests.harness.repository import write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.together import together
from tests.harness.triton_request import Reply, TritonStream, flag, infer_request

FIRST_TOKEN_LIMIT_S, IDLE_LIMIT_S = 2.0, 0.5
MARGIN_S = 1.5  # measured: 0.1 s


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Prefill takes 0.5 s a token and every further token 2 s: more than callers have patience for."""
    folder = tmp_path_factory.mktemp("slow")
    repository = write_repository(
        folder / "models",
        tensorrt_llm={"synthetic_prefill_tokens_per_s": 2, "synthetic_step_ms": 2000},
        tensorrt_llm_bls={
            "first_token_timeout_ms": int(FIRST_TOKEN_LIMIT_S * 1000),
            "idle_timeout_ms": int(IDLE_LIMIT_S * 1000),
        },
    )
    with serving(repository, folder / "artifacts", canary=CanaryPolicy(period_s=3600)) as running:
        yield running


def ask(server: LiveServer, prompt: str, tokens: int) -> tuple[Reply, float]:
    """Stream; return the reply and how long it took."""
    started_s = time.monotonic()
    tensors = text_inputs(prompt, tokens, stream=flag())
    with TritonStream(server.grpc) as stream:
        reply = stream.ask(infer_request("tensorrt_llm_bls", tensors), timeout_s=20)
    return reply, time.monotonic() - started_s


def recovers(server: LiveServer) -> None:
    """What callers gave up on is stopped in the engine, and the next request is answered."""
    wait_until(lambda: server.active() == 0, 10, "the engine has nothing to do")
    reply, _ = ask(server, "hi", 1)
    assert (reply.error, reply.text) == (None, "hi")


def test_no_first_token(server: LiveServer) -> None:
    for reply, seconds in together(lambda _: ask(server, "a b c d e f g h", 3), range(5)):
        assert reply.error is not None
        assert "[ENGINE_STALLED] the engine gave no first token for 2 s" in reply.error
        assert "partial" not in reply.error
        assert reply.responses == []
        assert FIRST_TOKEN_LIMIT_S <= seconds < FIRST_TOKEN_LIMIT_S + MARGIN_S
    recovers(server)


def test_silence_between_tokens(server: LiveServer) -> None:
    reply, seconds = ask(server, "hi", 3)
    assert reply.error is not None
    assert "[ENGINE_STALLED] the engine stopped answering for 0.5 s" in reply.error
    assert "partial answer was delivered" in reply.error
    assert reply.text == "hi"
    assert seconds < 0.5 + IDLE_LIMIT_S + MARGIN_S
    recovers(server)
