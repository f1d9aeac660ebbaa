"""The bare loop: every prompt at once, exactly the tokens asked for, and when each of them came."""

from __future__ import annotations

from pathlib import Path

from naiad.contract import TENSORRT_LLM
from naiad.serving.bare_engine import run
from naiad.serving.engine_factory import make_stepper
from naiad.settings.parameters import Parameters


def test_each_prompt_gets_its_tokens_at_times_that_do_not_fall(model_directory: Path) -> None:
    given = {
        "engine": "synthetic",
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": str(model_directory),
    }
    stepper = make_stepper(Parameters.of(TENSORRT_LLM, given), "/nowhere/tensorrt_llm", in_process=True)
    try:
        for _ in range(2):  # the engine can be asked again
            reply = run(stepper, [(5, 6, 7), (8, 9)], 6)
            assert [answer["input_tokens"] for answer in reply["answers"]] == [3, 2]
            for answer in reply["answers"]:
                assert sum(answer["response_tokens"]) == 6
                times_ns = [reply["started_ns"], *answer["response_ns"]]
                assert times_ns == sorted(times_ns)
                assert len(answer["response_ns"]) == len(answer["response_tokens"])
    finally:
        stepper.close()
