"""The roofline and the memory against what NVIDIA published of TensorRT-LLM engines that ran.

docs/source/performance.md of NVIDIA/TensorRT-LLM at commit 138f96d4 ("Peak Throughput" and "Low Latency");
throughput a GPU. The FP8 runs kept the KV cache in FP8.
"""

from __future__ import annotations

import statistics

import pytest

from naiad_build.plan.deployment import Deployment, Load, Split
from naiad_build.plan.machines import GPUS
from naiad_build.plan.planner import make_plan
from naiad_build.plan.precisions import PRECISIONS
from naiad_build.plan.roofline import REACHED, cost_per_million_tokens
from tests.harness.published_models import architecture

# model, GPU, GPUs, batch, input, output, tokens a second and GPU
THROUGHPUT = [
    ("Llama-2-7B", "h100", 1, 768, 128, 128, 19_694),
    ("Llama-2-7B", "h100", 1, 112, 128, 2048, 6_818),
    ("Llama-2-7B", "h100", 1, 80, 2048, 128, 2_244),
    ("Llama-2-7B", "h100", 1, 48, 2048, 2048, 2_740),
    ("Llama-2-70B", "h100", 2, 1024, 128, 128, 2_657),
    ("Llama-2-70B", "h100", 4, 480, 128, 2048, 1_486),
    ("Llama-2-70B", "h100", 2, 96, 2048, 128, 306),
    ("Llama-2-70B", "h100", 2, 64, 2048, 2048, 547),
    ("Llama-2-7B", "l40s", 1, 64, 128, 128, 3_240),
    ("Llama-2-7B", "l40s", 1, 64, 128, 2048, 1_622),
    ("Llama-2-7B", "l40s", 1, 32, 2048, 128, 581),
    ("Llama-2-7B", "l40s", 1, 16, 2048, 2048, 531),
    ("Llama-2-7B", "a100_80gb", 1, 384, 128, 128, 5_586),
    ("Llama-2-7B", "a100_80gb", 1, 60, 128, 2048, 1_928),
    ("Llama-2-7B", "a100_80gb", 1, 52, 2048, 128, 591),
]
# model, GPU, GPUs, input, ms to the first token
FIRST_TOKEN = [
    ("Llama-2-7B", "h100", 1, 128, 7),
    ("Llama-2-7B", "h100", 1, 2048, 36),
    ("Llama-2-70B", "h100", 4, 128, 26),
    ("Llama-2-70B", "h100", 4, 2048, 109),
    ("Llama-2-7B", "l40s", 1, 128, 14),
    ("Llama-2-7B", "l40s", 1, 2048, 73),
    ("Llama-2-7B", "a100_80gb", 1, 128, 16),
    ("Llama-2-7B", "a100_80gb", 1, 2048, 133),
    ("Llama-2-70B", "a100_80gb", 4, 128, 47),
    ("Llama-2-70B", "a100_80gb", 4, 2048, 377),
]


def deployment(model: str, gpu: str, gpus: int, load: Load) -> Deployment:
    ampere = gpu.startswith("a100")
    precision, kv = ("float16", "float16") if ampere else ("fp8", "fp8")
    return Deployment(architecture(model), GPUS[gpu], Split(gpus), PRECISIONS[precision], kv, load)


def reached(row: tuple[str, str, int, int, int, int, int]) -> float:
    model, gpu, gpus, batch, input_tokens, output_tokens, measured = row
    made = make_plan(deployment(model, gpu, gpus, Load(batch, input_tokens, output_tokens, 8192)))
    return measured * gpus / made.speed.tokens_per_s


def test_no_engine_was_faster_than_the_bound_and_the_median_is_what_is_stated() -> None:
    shares = [reached(row) for row in THROUGHPUT]
    assert (round(min(shares), 2), round(max(shares), 2)) == (0.15, 0.81)
    assert statistics.median(shares) == pytest.approx(REACHED, abs=0.005)


@pytest.mark.parametrize(("model", "gpu", "gpus", "input_tokens", "measured_ms"), FIRST_TOKEN)
def test_no_first_token_came_earlier_than_the_bound(
    model: str, gpu: str, gpus: int, input_tokens: int, measured_ms: float
) -> None:
    made = make_plan(deployment(model, gpu, gpus, Load(1, input_tokens, 1, 8192)))
    assert 0.15 * measured_ms < made.speed.prefill_s * 1000 < measured_ms


@pytest.mark.parametrize(("model", "gpu", "gpus", "batch", "input_tokens", "output_tokens", "_"), THROUGHPUT)
def test_batches_that_ran_fit_or_nearly(
    model: str, gpu: str, gpus: int, batch: int, input_tokens: int, output_tokens: int, _: int
) -> None:
    """Two of 15 are above, by less than a tenth: engines can be given more than 0.9 of what is free."""
    made = make_plan(deployment(model, gpu, gpus, Load(batch, input_tokens, output_tokens, 8192)))
    assert made.largest_batch >= 0.9 * batch


@pytest.mark.parametrize(("gpu", "other"), [("a100_40gb", "a100_80gb"), ("l40s", "h100"), ("h100", "h200")])
def test_more_bandwidth_is_faster(gpu: str, other: str) -> None:
    load = Load(8, 512, 128, 2048)
    slow, fast = (make_plan(deployment("Llama-2-7B", name, 1, load)).speed for name in (gpu, other))
    assert slow.bound == fast.bound == "memory"
    assert slow.step_s / fast.step_s == pytest.approx(GPUS[other].bandwidth_gb_s / GPUS[gpu].bandwidth_gb_s)


def test_a_step_of_one_sequence_reads_all_weights_once() -> None:
    """Llama-2-7B in 16 bits without its embedding is 13.2 GB; over 2,039 GB/s that is 6.5 ms."""
    speed = make_plan(deployment("Llama-2-7B", "a100_80gb", 1, Load(1, 1, 1, 8192))).speed
    assert speed.step_s * 1000 == pytest.approx(2 * (6_738_415_616 - 131_072_000) / 2_039e6, rel=0.001)


def test_a_large_batch_passes_all_experts_a_small_one_few() -> None:
    def step_s(batch: int) -> float:
        made = make_plan(deployment("Mixtral-8x7B", "h200", 1, Load(batch, 1, 1, 8192)))
        return made.speed.step_s

    every_weight = (46_702_792_704 - 2 * 131_072_000 + 2 * 131_072_000) / 4.8e12
    assert step_s(64) == pytest.approx(every_weight, rel=0.02)
    assert 0.25 < step_s(1) / step_s(64) < 0.3


def test_cost_is_price_over_throughput() -> None:
    assert cost_per_million_tokens(3.6, 1000) == pytest.approx(1.0)
