"""What is to be planned: a model on GPUs, in a format, under a load."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from naiad_build.errors import PlanError
from naiad_build.plan.architecture import Architecture
from naiad_build.plan.machines import Gpu
from naiad_build.plan.precisions import Precision

__all__ = ["Deployment", "Load", "Split", "split_over"]

GPUS_PER_NODE = 8
"""Joined by NVLink; tensor parallelism across nodes would wait for the network twice a layer."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is spread over GPUs.

    Attributes:
        tensor_parallel: every matrix is cut into so many parts.
        pipeline_parallel: the layers are cut into so many stages.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def gpus(self) -> int:
        """GPUs it takes."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True, slots=True)
class Load:
    """What is served at once, in tokens.

    Attributes:
        batch: sequences at once.
        input_tokens: of each prompt.
        output_tokens: of each answer.
        max_num_tokens: tokens the engine takes in one step.
    """

    batch: int
    input_tokens: int
    output_tokens: int
    max_num_tokens: int

    @property
    def sequence_tokens(self) -> int:
        """Prompt and answer together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on GPUs."""

    architecture: Architecture
    gpu: Gpu
    split: Split
    precision: Precision
    kv_precision: str
    load: Load


def split_over(architecture: Architecture, gpus: int) -> Split:
    """Return the split with the most tensor parallelism: it divides time as well as memory.

    Raises:
        PlanError: heads and layers cannot be divided over so many.
    """
    divides = gcd(architecture.heads, architecture.intermediate_size)
    for tensor in sorted(_divisors(gpus), reverse=True):
        heads_fit = architecture.kv_heads % tensor == 0 or tensor % architecture.kv_heads == 0
        stages = gpus // tensor
        if tensor <= GPUS_PER_NODE and divides % tensor == 0 and heads_fit and stages <= architecture.layers:
            return Split(tensor, stages)
    raise PlanError(
        f"{architecture.heads} heads and {architecture.layers} layers cannot be divided over {gpus} GPUs"
    )


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
