"""B13 by every model: while a server drains, new requests are refused as such and live ones end as ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from naiad.server.state import Phase
from tests.harness.prompts import STREAMING_MODELS, inputs_for
from tests.harness.repository import write_repository
from tests.harness.server import serving, wait_until
from tests.harness.triton_request import Reply, TritonStream, infer_request

STREAMS = 10
TOKENS = 125  # 2.5 s at 20 ms each


def test_a_drain_is_clean_for_every_model(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models", tensorrt_llm={"synthetic_step_ms": 20})
    with serving(repository, tmp_path / "artifacts") as server, TritonStream(server.grpc) as stream:

        def ask(model: str, tokens: int) -> Reply:
            return stream.ask(infer_request(model, inputs_for(model, tokens, streaming=True)))

        def refused(model: str) -> bool:
            return "[DRAINING]" in (ask(model, 1).error or "")

        models = [STREAMING_MODELS[number % len(STREAMING_MODELS)] for number in range(STREAMS)]
        with ThreadPoolExecutor(STREAMS) as threads:
            live = [threads.submit(ask, model, TOKENS) for model in models]
            wait_until(lambda: server.active() >= STREAMS, 10, "all streams run")
            server.supervisor.request_stop()
            for model in STREAMING_MODELS:
                wait_until(partial(refused, model), 2, f"{model} refuses as draining")
            replies = [reply.result(timeout=30) for reply in live]

        def stopped() -> bool:
            state = server.supervisor.state
            return state is not None and state.phase is Phase.STOPPED

        assert [(reply.error, reply.finish_reason) for reply in replies] == [(None, "length")] * STREAMS
        assert [len(reply.responses) for reply in replies] == [TOKENS] * STREAMS
        wait_until(stopped, 15, "the server has ended")
        assert server.supervisor.state is not None
        assert server.supervisor.state.reason == "drained"
