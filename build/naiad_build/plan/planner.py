"""Plans: does it fit, how far could it go, and if not, what is nearest that does."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from naiad_build.errors import PlanError
from naiad_build.plan.deployment import Deployment, split_over
from naiad_build.plan.memory import TOKENS_PER_BLOCK, Memory, memory_of
from naiad_build.plan.precisions import PRECISIONS, Arithmetic
from naiad_build.plan.roofline import Speed, speed_of

__all__ = ["Alternative", "Plan", "make_plan"]

_MOST_GPUS = 64
_MOST_SEQUENCES = 65_536


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something near to what was asked for that fits.

    Attributes:
        change: what is different, in words.
        deployment: the whole.
    """

    change: str
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a deployment.

    Attributes:
        deployment: as asked for.
        memory: of its fullest GPU.
        speed: at most; of the load, whether it fits or not.
        largest_batch: sequences of the load's length that the KV cache holds.
        largest_context: tokens of each sequence, of the load's batch, at most what the model was made for.
        alternatives: where it does not fit; the nearest of each kind.
    """

    deployment: Deployment
    memory: Memory
    speed: Speed
    largest_batch: int
    largest_context: int
    alternatives: tuple[Alternative, ...]

    @property
    def fits(self) -> bool:
        """Whether the load can be served."""
        return self.memory.fits


def make_plan(deployment: Deployment) -> Plan:
    """Plan a deployment.

    Raises:
        PlanError: the GPU lacks the arithmetic, or the model the context; what would do is named.
    """
    _check_gpu(deployment)
    _check_context(deployment)
    memory = memory_of(deployment)
    return Plan(
        deployment=deployment,
        memory=memory,
        speed=speed_of(deployment),
        largest_batch=_largest_batch(deployment),
        largest_context=_largest_context(deployment),
        alternatives=() if memory.fits else tuple(_alternatives(deployment)),
    )


def _check_gpu(deployment: Deployment) -> None:
    gpu, precision = deployment.gpu, deployment.precision
    if gpu.compute_capability < precision.compute_capability:
        able = [
            each.name for each in PRECISIONS.values() if each.compute_capability <= gpu.compute_capability
        ]
        raise PlanError(
            f"{gpu.title} cannot compute in {precision.name}, which needs compute capability "
            f"{_version(precision.compute_capability)}; it has {_version(gpu.compute_capability)} and can "
            f"compute in {', '.join(able)}"
        )


def _check_context(deployment: Deployment) -> None:
    load, most = deployment.load, deployment.architecture.context_length
    if load.sequence_tokens > most:
        raise PlanError(
            f"{load.input_tokens:,} input and {load.output_tokens:,} output tokens are more than the "
            f"{most:,} positions the model was made for"
        )


def _version(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _with_load(deployment: Deployment, **changes: int) -> Deployment:
    return replace(deployment, load=replace(deployment.load, **changes))


def _largest_batch(deployment: Deployment) -> int:
    def is_too_much(batch: int) -> bool:
        return not memory_of(_with_load(deployment, batch=batch)).fits

    return bisect_left(range(1, _MOST_SEQUENCES + 1), True, key=is_too_much)


def _largest_context(deployment: Deployment) -> int:
    blocks = memory_of(deployment).kv_tokens // TOKENS_PER_BLOCK // deployment.load.batch
    return min(blocks * TOKENS_PER_BLOCK, deployment.architecture.context_length)


def _alternatives(deployment: Deployment) -> Iterator[Alternative]:
    """Yield the nearest that fits of each kind, with all else as asked for."""
    batch = _largest_batch(deployment)
    if batch:
        yield Alternative(f"a batch of {batch:,}", _with_load(deployment, batch=batch))
    tokens = _largest_context(deployment) - deployment.load.output_tokens
    if tokens > 0:
        yield Alternative(f"prompts of {tokens:,} tokens", _with_load(deployment, input_tokens=tokens))
    yield from _smaller_kv(deployment)
    yield from _smaller_weights(deployment)
    yield from _more_gpus(deployment)


def _smaller_kv(deployment: Deployment) -> Iterator[Alternative]:
    if deployment.kv_precision not in ("fp8", "int8"):
        int8 = deployment.gpu.dense_tflops.get(Arithmetic.FP8) is None
        smaller = replace(deployment, kv_precision="int8" if int8 else "fp8")
        if memory_of(smaller).fits:
            yield Alternative(f"a KV cache in {smaller.kv_precision}", smaller)


def _smaller_weights(deployment: Deployment) -> Iterator[Alternative]:
    able = [
        precision
        for precision in PRECISIONS.values()
        if precision.compute_capability <= deployment.gpu.compute_capability
        and precision.bytes_per_parameter < deployment.precision.bytes_per_parameter
    ]
    for precision in sorted(able, key=lambda each: -each.bytes_per_parameter):
        smaller = replace(deployment, precision=precision)
        if memory_of(smaller).fits:
            yield Alternative(f"weights in {precision.name}", smaller)
            return


def _more_gpus(deployment: Deployment) -> Iterator[Alternative]:
    gpus = deployment.split.gpus
    while (gpus := gpus * 2) <= _MOST_GPUS:
        try:
            split = split_over(deployment.architecture, gpus)
        except PlanError:
            return
        larger = replace(deployment, split=split)
        if memory_of(larger).fits:
            yield Alternative(f"{gpus} GPUs", larger)
            return
