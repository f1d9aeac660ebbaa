"""The engine in a bare loop, without Triton: what serving is measured against.

`python -m naiad.serving.bare_engine` writes `{"ready": true}`, then reads one JSON request a line from stdin,
`{"prompts": [...], "tokens": n}`, runs all prompts at once for exactly n tokens each, and writes
`{"started_ns": t, "answers": [{"input_tokens": .., "response_ns": [...], "response_tokens": [...]}, ...]}`:
an answer for each prompt with the times (monotonic clock) at which so many tokens came. The engine's settings
are those of model `tensorrt_llm` under the `cpu` profile.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from naiad.contract import TENSORRT_LLM, GenerationRequest, SamplingParams
from naiad.engines.stepper import Stepper
from naiad.serving.engine_factory import make_stepper
from naiad.settings.model_directory import DEFAULT_MODEL_DIRECTORY, resolve_model_directory
from naiad.settings.parameters import Parameters
from naiad.tokenization import Tokenizer

__all__ = ["main", "run"]

_PROFILE = {
    "gpt_model_type": "inflight_fused_batching",
    "gpt_model_path": DEFAULT_MODEL_DIRECTORY,
    "enable_chunked_context": "true",
}


def run(stepper: Stepper, prompts: Sequence[Sequence[int]], tokens: int) -> dict[str, Any]:
    """Generate `tokens` tokens for every prompt, all at once, and note when they came."""
    answers: list[dict[str, Any]] = [
        {"input_tokens": len(prompt), "response_ns": [], "response_tokens": []} for prompt in prompts
    ]
    started_ns = time.monotonic_ns()
    for key, prompt in enumerate(prompts):
        stepper.add(key, GenerationRequest("", tuple(prompt), SamplingParams(max_tokens=tokens)))
    running = len(prompts)
    while running:
        results = stepper.step()
        now_ns = time.monotonic_ns()
        for result in results:
            running -= result.finish_reason is not None
            if result.ids:
                answers[result.key]["response_ns"].append(now_ns)
                answers[result.key]["response_tokens"].append(len(result.ids))
    return {"started_ns": started_ns, "answers": answers}


def main() -> None:
    """Answer requests until stdin ends."""
    repository = "model_repository/tensorrt_llm"
    stepper = make_stepper(Parameters.of(TENSORRT_LLM, _PROFILE), repository, in_process=True)
    tokenizer = Tokenizer.load(resolve_model_directory(DEFAULT_MODEL_DIRECTORY, repository))
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        prompts = [tokenizer.encode(prompt) for prompt in request["prompts"]]
        sys.stdout.write(json.dumps(run(stepper, prompts, request["tokens"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
