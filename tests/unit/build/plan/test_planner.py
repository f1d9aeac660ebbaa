"""What fits, what is nearest where something does not, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from naiad_build.errors import PlanError
from naiad_build.plan.deployment import Deployment, Load, Split, split_over
from naiad_build.plan.machines import GPUS
from naiad_build.plan.memory import kv_bytes_per_token, memory_of
from naiad_build.plan.planner import make_plan
from naiad_build.plan.precisions import PRECISIONS
from tests.harness.published_models import CONFIGS, architecture

LOAD = Load(batch=16, input_tokens=1024, output_tokens=1024, max_num_tokens=2048)


def deployment(
    model: str = "Llama-3.1-8B",
    gpu: str = "h100",
    *,
    split: Split = Split(),  # noqa: B008 - frozen
    precision: str = "fp8",
    kv: str = "fp8",
    load: Load = LOAD,
) -> Deployment:
    return Deployment(architecture(model), GPUS[gpu], split, PRECISIONS[precision], kv, load)


def test_weights_of_16_bits_are_two_bytes_a_parameter() -> None:
    """vLLM issue 12330 reports 14.96 GiB for Llama-3-8B."""
    memory = memory_of(deployment(precision="bfloat16"))
    assert memory.weights == 2 * 8_030_261_248
    assert round(memory.weights / 2**30, 2) == 14.96


@pytest.mark.parametrize(
    ("precision", "of_16_bits"), [("fp8", 1 / 2), ("int8_sq", 1 / 2), ("int4_awq", 0.515625 / 2)]
)
def test_quantisation_makes_the_layers_smaller_and_nothing_else(precision: str, of_16_bits: float) -> None:
    sizes = architecture("Llama-3.1-8B")
    matrices = 2 * sizes.matrix_parameters
    full = memory_of(deployment(precision="bfloat16")).weights
    expected = full - matrices * (1 - of_16_bits)
    assert memory_of(deployment(precision=precision)).weights == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("model", CONFIGS)
@pytest.mark.parametrize("tensor", [1, 2])
def test_the_parts_of_a_model_are_at_least_the_whole(model: str, tensor: int) -> None:
    whole = memory_of(deployment(model, precision="bfloat16"))
    parts = memory_of(deployment(model, precision="bfloat16", split=Split(tensor)))
    assert whole.weights <= tensor * parts.weights
    assert (
        whole.kv_per_token <= tensor * parts.kv_per_token <= whole.kv_per_token * 4 / 3
    )  # 3 heads on 2 GPUs


def test_kv_heads_are_copied_to_more_gpus_than_there_are() -> None:
    """Qwen2.5-7B has 4 of them."""
    eight = deployment("Qwen2.5-7B", split=Split(8))
    four = deployment("Qwen2.5-7B", split=Split(4))
    assert memory_of(eight).kv_per_token == memory_of(four).kv_per_token
    assert kv_bytes_per_token(four) == 4 * memory_of(four).kv_per_token


def test_stages_hold_their_layers_only() -> None:
    memory = memory_of(deployment("Llama-3.1-70B", split=Split(1, 4)))
    assert memory.kv_per_token == 2 * 20 * 8 * 128
    assert memory.activations == memory_of(deployment("Llama-3.1-70B")).activations


def test_what_is_said_to_be_largest_fits_and_one_more_does_not() -> None:
    made = make_plan(deployment())
    fitting = replace(made.deployment, load=replace(LOAD, batch=made.largest_batch))
    assert make_plan(fitting).fits
    assert not make_plan(replace(fitting, load=replace(LOAD, batch=made.largest_batch + 1))).fits


def test_the_largest_context_fits_and_a_block_more_does_not() -> None:
    made = make_plan(deployment(load=replace(LOAD, batch=100)))
    tokens = made.largest_context - LOAD.output_tokens
    fitting = replace(made.deployment, load=replace(made.deployment.load, input_tokens=tokens))
    assert make_plan(fitting).fits
    larger = replace(fitting, load=replace(fitting.load, input_tokens=tokens + 32))
    assert not make_plan(larger).fits


def test_the_largest_context_is_at_most_the_models() -> None:
    assert make_plan(deployment("Llama-2-7B", load=replace(LOAD, batch=1))).largest_context == 4096


@pytest.mark.parametrize(
    ("of", "changes"),
    [
        (
            deployment("Llama-3.1-70B", load=replace(LOAD, batch=40)),
            ["a batch of 30", "prompts of 512 tokens", "weights in int4_awq", "2 GPUs"],
        ),
        (
            deployment("Llama-3.1-70B", precision="bfloat16", kv="bfloat16"),
            ["weights in int4_awq", "2 GPUs"],
        ),
        (deployment("Llama-3.1-405B", split=Split(8), precision="bfloat16"), ["weights in fp8", "16 GPUs"]),
        (
            deployment(
                "Llama-2-7B", "a100_40gb", precision="float16", kv="float16", load=replace(LOAD, batch=24)
            ),
            ["a batch of 23", "prompts of 992 tokens", "a KV cache in int8", "weights in int8_sq", "2 GPUs"],
        ),
    ],
)
def test_the_nearest_of_each_kind_is_named_and_fits(of: Deployment, changes: list[str]) -> None:
    made = make_plan(of)
    assert not made.fits
    assert all(make_plan(alternative.deployment).fits for alternative in made.alternatives)
    assert [alternative.change for alternative in made.alternatives] == changes


def test_what_fits_has_no_alternatives() -> None:
    made = make_plan(deployment())
    assert made.fits
    assert made.alternatives == ()


def test_nothing_near_fits_where_nothing_does() -> None:
    huge = deployment("Llama-3.1-405B", "l40s", precision="int4_awq", load=replace(LOAD, batch=60_000))
    assert make_plan(huge).alternatives == ()


@pytest.mark.parametrize(
    ("model", "gpus", "split"),
    [
        ("Llama-3.1-70B", 1, Split(1, 1)),
        ("Llama-3.1-70B", 8, Split(8, 1)),
        ("Llama-3.1-70B", 16, Split(8, 2)),
        ("Llama-3.1-70B", 3, Split(1, 3)),
        ("Qwen2.5-0.5B", 4, Split(2, 2)),  # 14 heads
        ("SmolLM2-135M", 2, Split(1, 2)),  # 9 heads
    ],
)
def test_gpus_are_used_for_tensor_parallelism_as_far_as_heads_allow(
    model: str, gpus: int, split: Split
) -> None:
    assert split_over(architecture(model), gpus) == split


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(PlanError, match="9 heads and 30 layers cannot be divided over 31 GPUs"):
        split_over(architecture("SmolLM2-135M"), 31)


def test_a_gpu_that_lacks_the_arithmetic_is_refused_with_what_it_has() -> None:
    with pytest.raises(PlanError, match=r"A100 .* cannot compute in fp8, .* 8\.9; .* 8\.0 .*int8_sq"):
        make_plan(deployment(gpu="a100_80gb"))


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(PlanError, match="4,000 input and 200 output tokens are more than the 4,096"):
        make_plan(deployment("Llama-2-7B", load=Load(1, 4000, 200, 8192)))
