"""transformers' `generate` on torch's CPU, in a process of its own.

`python transformers_generate.py SETTINGS` takes `{"gguf": PATH, "dtype": "float32", "threads": N}`, loads the
weights (dequantised) and writes a line of JSON with versions. Then each line on stdin, `{"prompts": [[ids],
...], "tokens": n, "batch": b}`, makes it answer all prompts, b at a time, with exactly n of the most likely
tokens each, and write `{"batches": [{"size": .., "sent_ns": .., "step_ns": [..], "ids": [[..], ..]}, ...]}`:
when `generate` was called, when each token of the batch was there (monotonic clock), and the tokens. It ends
with stdin. It imports nothing of Naiad's: it runs in the peers' environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import transformers


class StepTimes:
    """A streamer: notes when `generate` hands over the tokens of a step; the first are the prompts."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        """Take a step's tokens."""
        self.times_ns.append(time.monotonic_ns())

    def end(self) -> None:
        """Take the end."""


def main() -> None:
    """Answer until stdin ends."""
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    folder, file = os.path.split(settings["gguf"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=getattr(torch, settings["dtype"])
    )
    model.eval()
    _tell(
        {
            "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "attention": model.config._attn_implementation,
        }
    )
    for line in sys.stdin:
        question = json.loads(line)
        prompts, batch = question["prompts"], question["batch"]
        batches = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]
        _tell({"batches": [_generate(model, part, question["tokens"]) for part in batches]})


def _generate(model: Any, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
    """Answer one batch; shorter prompts are filled up on the left."""
    longest = max(map(len, prompts))
    pad = model.config.eos_token_id if isinstance(model.config.eos_token_id, int) else 0
    ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    steps = StepTimes()
    sent_ns = time.monotonic_ns()
    with torch.inference_mode():
        answer = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=pad,
            streamer=steps,
        )
    return {
        "size": len(prompts),
        "sent_ns": sent_ns,
        "step_ns": steps.times_ns[1:],
        "ids": answer[:, longest:].tolist(),
    }


def _tell(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
