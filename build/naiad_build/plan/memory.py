"""What fills a GPU's memory, and what is left for the KV cache.

Weights and KV cache are exact. Activations follow TensorRT-LLM's docs/source/reference/memory.md: one layer's
tensors are alive at a time, their size grows with the tokens of a step, and tensor parallelism divides the
split ones while pipeline parallelism does not. Which tensors those are depends on TensorRT's fusions, so that
is an estimate from above, and the reserve an assumption; both are stated in the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from naiad_build.plan.deployment import Deployment
from naiad_build.plan.precisions import KV_BYTES

__all__ = ["KV_FRACTION", "TOKENS_PER_BLOCK", "Memory", "kv_bytes_per_token", "memory_of"]

KV_FRACTION = 0.9
"""TensorRT-LLM's default of `kv_cache_free_gpu_mem_fraction`: the share of free memory the KV cache takes."""
_RESERVE_BYTES = 2**30
"""CUDA's context, libraries' workspaces, communication buffers. An assumption."""
TOKENS_PER_BLOCK = 32
"""trtllm-build's default of `--tokens_per_block`."""
_ACTIVATION_BYTES = 2
_LOGIT_BYTES = 4
_OTHER_BYTES = 2


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest of the GPUs.

    Attributes:
        weights: all of its parameters.
        activations: of a step of `max_num_tokens`, and the logits.
        reserve: what neither is.
        total: the GPU's memory.
        kv_per_token: KV cache of a token.
        kv_needed: KV cache of the load: every sequence at its full length, in whole blocks.
        kv_available: what the engine will take for the KV cache.
    """

    weights: int
    activations: int
    reserve: int
    total: int
    kv_per_token: int
    kv_needed: int
    kv_available: int

    @property
    def fits(self) -> bool:
        """Whether the load can be served without pausing or refusing a sequence."""
        return self.kv_needed <= self.kv_available

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds."""
        return max(self.kv_available, 0) // self.kv_per_token // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK


def memory_of(deployment: Deployment) -> Memory:
    """Return what a deployment takes on its fullest GPU."""
    total = deployment.gpu.memory_bytes
    weights = _weights(deployment)
    activations = _activations(deployment)
    per_token = _kv_per_token_on_a_gpu(deployment)
    blocks = deployment.load.batch * ceil(deployment.load.sequence_tokens / TOKENS_PER_BLOCK)
    free = total - _RESERVE_BYTES - weights - activations
    return Memory(
        weights=weights,
        activations=activations,
        reserve=_RESERVE_BYTES,
        total=total,
        kv_per_token=per_token,
        kv_needed=blocks * TOKENS_PER_BLOCK * per_token,
        kv_available=int(KV_FRACTION * free),
    )


def kv_bytes_per_token(deployment: Deployment) -> int:
    """Return the KV cache of a token over all GPUs: 2 x layers x KV heads x head size x bytes."""
    return deployment.architecture.kv_values_per_token * KV_BYTES[deployment.kv_precision]


def _weights(deployment: Deployment) -> int:
    """Return the weights of a GPU of the fullest stage.

    The embedding is whole on each GPU of its stage (trtllm-build's default); a separate output matrix is cut.
    """
    architecture, split = deployment.architecture, deployment.split
    share = _layers_of_a_stage(deployment) / architecture.layers / split.tensor_parallel
    matrices = architecture.matrix_parameters * deployment.precision.bytes_per_parameter * share
    embedding = architecture.vocab_size * architecture.hidden_size
    outputs = 0 if architecture.tied else embedding // split.tensor_parallel
    small = architecture.other_parameters - embedding * (1 if architecture.tied else 2)
    ends = max(embedding, outputs) if split.pipeline_parallel > 1 else embedding + outputs
    return ceil(matrices + (ends + small) * _OTHER_BYTES)


def _activations(deployment: Deployment) -> int:
    architecture, tensor = deployment.architecture, deployment.split.tensor_parallel
    feed_forward = 3 * architecture.intermediate_size * max(architecture.experts_per_token, 1) / tensor
    attention = (architecture.heads + 2 * architecture.kv_heads) * architecture.head_size / tensor
    width = 2 * architecture.hidden_size + max(feed_forward, attention)
    logits = deployment.load.batch * architecture.vocab_size * _LOGIT_BYTES
    return ceil(deployment.load.max_num_tokens * width * _ACTIVATION_BYTES + logits)


def _kv_per_token_on_a_gpu(deployment: Deployment) -> int:
    """Return the KV cache of a token on a GPU; more GPUs than KV heads keep copies."""
    architecture = deployment.architecture
    heads = ceil(architecture.kv_heads / deployment.split.tensor_parallel)
    values = 2 * _layers_of_a_stage(deployment) * heads * architecture.head_size
    return values * KV_BYTES[deployment.kv_precision]


def _layers_of_a_stage(deployment: Deployment) -> int:
    return ceil(deployment.architecture.layers / deployment.split.pipeline_parallel)
