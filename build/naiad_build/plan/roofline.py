"""The most a deployment can do: bytes over bandwidth, or operations over arithmetic, whichever takes longer.

A bound, not a forecast. `REACHED` is what served engines reach of it: the median (0.15 to 0.81) over 15
figures that NVIDIA published for TensorRT-LLM (docs/source/performance.md at commit 138f96d4: LLaMA 7B and
70B on H100 and L40S in FP8, on A100 in FP16), none of which is above it; tests/unit/build/plan compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from naiad_build.plan.deployment import Deployment
from naiad_build.plan.memory import kv_bytes_per_token
from naiad_build.plan.precisions import Arithmetic

__all__ = ["REACHED", "Speed", "cost_per_million_tokens", "speed_of"]

REACHED = 0.69
_OTHER_BYTES = 2


@dataclass(frozen=True, slots=True)
class Speed:
    """What the hardware allows at most.

    Attributes:
        step_s: one step of the whole batch, every sequence half way through its answer.
        prefill_s: the prompt of one request.
        tokens_per_s: generated tokens, all sequences together, prompts' time included.
        bound: what limits a step: "memory" or "arithmetic".
    """

    step_s: float
    prefill_s: float
    tokens_per_s: float
    bound: str


def speed_of(deployment: Deployment) -> Speed:
    """Return a deployment's speed at the roofline, all of its GPUs perfectly busy."""
    load = deployment.load
    context = load.input_tokens + load.output_tokens / 2
    read_s = _read_bytes(deployment, load.batch, context) / _bandwidth(deployment)
    compute_s = load.batch * _token_s(deployment, context)
    prefill_read_s = _read_bytes(deployment, load.input_tokens, 0) / _bandwidth(deployment)
    prefill_compute_s = load.input_tokens * _token_s(deployment, load.input_tokens / 2)
    step_s, prefill_s = max(read_s, compute_s), max(prefill_read_s, prefill_compute_s)
    round_s = load.batch * prefill_compute_s + load.output_tokens * step_s
    return Speed(
        step_s=step_s,
        prefill_s=prefill_s,
        tokens_per_s=load.batch * load.output_tokens / round_s,
        bound="memory" if read_s >= compute_s else "arithmetic",
    )


def cost_per_million_tokens(hourly_price_usd: float, tokens_per_s: float) -> float:
    """Return USD for a million generated tokens.

    Args:
        hourly_price_usd: of all GPUs together.
        tokens_per_s: generated tokens a second.
    """
    return hourly_price_usd / 3600 / tokens_per_s * 1e6


def _bandwidth(deployment: Deployment) -> float:
    return deployment.gpu.bandwidth_gb_s * 1e9 * deployment.split.gpus


def _read_bytes(deployment: Deployment, tokens: float, context: float) -> float:
    """Return what a step of so many tokens reads: the weights they pass, and a KV cache of `context` each."""
    architecture = deployment.architecture
    matrices: float = architecture.matrix_parameters
    if architecture.experts:
        dormant = architecture.matrix_parameters - architecture.active_matrix_parameters
        per_expert = dormant / (architecture.experts - architecture.experts_per_token)
        idle = (1 - architecture.experts_per_token / architecture.experts) ** tokens  # routed evenly
        matrices = architecture.matrix_parameters - architecture.experts * idle * per_expert
    weights = matrices * deployment.precision.bytes_per_parameter
    weights += architecture.vocab_size * architecture.hidden_size * _OTHER_BYTES
    return weights + tokens * context * kv_bytes_per_token(deployment)


def _token_s(deployment: Deployment, context: float) -> float:
    """Return the arithmetic of a token, two operations a parameter; attention and output in 16 bits."""
    architecture, speeds = deployment.architecture, deployment.gpu.dense_tflops
    quantised = 2 * architecture.active_matrix_parameters
    attention = 4 * architecture.layers * architecture.heads * architecture.head_size * context
    rest = 2 * architecture.vocab_size * architecture.hidden_size + attention
    seconds = quantised / speeds[deployment.precision.arithmetic] + rest / speeds[Arithmetic.BITS_16]
    return seconds / 1e12 / deployment.split.gpus
