"""`naiad build plan`: what fits, how far it goes, what it costs at best."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from naiad_build.commands.terminal import errors, explained, output
from naiad_build.errors import PlanError
from naiad_build.plan.deployment import Deployment
from naiad_build.plan.machines import GPUS
from naiad_build.plan.memory import KV_FRACTION, kv_bytes_per_token
from naiad_build.plan.planner import Plan, make_plan
from naiad_build.plan.precisions import KV_BYTES, PRECISIONS
from naiad_build.plan.roofline import REACHED, cost_per_million_tokens
from naiad_build.profile import Profile, load_profile, profile_path
from naiad_build.profile_plan import deployment_of

__all__ = ["plan"]

_GIB = 2**30
_DEFAULT_PROFILE = "h100_fp8"


def plan(
    checkpoint: Annotated[
        Path,
        typer.Argument(help="A checkpoint's config.json, or the folder that holds it.", metavar="CHECKPOINT"),
    ],
    profile: Annotated[
        str, typer.Option(help="Profile that says all of what follows.", metavar="PROFILE")
    ] = _DEFAULT_PROFILE,
    gpu: Annotated[str | None, typer.Option(help=f"Another GPU: {', '.join(GPUS)}.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, max=64, help="How many of them.")] = None,
    precision: Annotated[
        str | None, typer.Option(help=f"Format of the weights: {', '.join(PRECISIONS)}.")
    ] = None,
    kv_precision: Annotated[
        str | None, typer.Option(help=f"Format of the KV cache: {', '.join(KV_BYTES)}.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=65_536, help="Sequences at once.")] = None,
    input_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of each prompt.")] = None,
    output_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of each answer.")] = None,
    hourly_price: Annotated[
        float | None, typer.Option(min=0.001, help="USD an hour, of all GPUs together; for the cost.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Say whether a model fits a machine, how far it goes there, and what a million tokens cost at best.

    Nothing is downloaded or built, and no GPU is needed. Weights and KV cache are exact; activations are
    estimated from above; speed is the roofline, and what published figures reach of it.

    - `naiad build plan ./Llama-3.1-8B-Instruct`

    - `naiad build plan ./Llama-3.1-70B/config.json --profile h200_fp8_tp2 --batch 64`

    - `naiad build plan ./Qwen3-30B-A3B --gpu l40s --gpus 2 --precision int4_awq --input-tokens 4000`

    Exit status: 0 it fits; 1 it does not, and what is nearest is said; or something is wrong.
    """
    with explained():
        stated = load_profile(profile_path(profile))
        changed = _changed(
            stated,
            machine={"gpu": gpu, "count": gpus},
            engine={"precision": precision, "kv_precision": kv_precision, "max_batch_size": batch},
        )
        deployment, _ = deployment_of(checkpoint.expanduser(), changed)
        load = deployment.load
        lengths = (input_tokens or load.input_tokens, output_tokens or load.output_tokens)
        load = replace(load, input_tokens=lengths[0], output_tokens=lengths[1])
        made = make_plan(replace(deployment, load=load))
    same_machine = changed.machine == stated.machine
    price = hourly_price if hourly_price is not None else stated.hourly_price_usd if same_machine else None
    if json_output:
        typer.echo(json.dumps(_as_json(made, price), allow_nan=False))
    else:
        output.print(_table(made, price))
    if not made.fits:
        _say_what_would(made)
        raise typer.Exit(1)


def _changed(profile: Profile, **sections: dict[str, Any]) -> Profile:
    """Return the profile with what was said on top of its sections."""
    content = profile.model_dump()
    for section, values in sections.items():
        if content[section] is not None:
            content[section] |= {key: value for key, value in values.items() if value is not None}
    if profile.machine is not None and content["machine"]["count"] != profile.machine.count:
        content["engine"]["tensor_parallel"] = None
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][-1]).replace("_", "-")
        raise PlanError(f"--{option}: {str(fault['msg']).removeprefix('Value error, ')}") from None


def _table(made: Plan, price: float | None) -> Table:
    architecture = made.deployment.architecture
    size = f"{architecture.model_type}, {architecture.parameters / 1e9:,.2f} B parameters"
    title = f"{size}, on {_machine(made.deployment)}"
    table = Table(show_header=False, box=None, title=title, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for row in (*_memory_rows(made), *(_speed_rows(made, price) if made.fits else ())):
        table.add_row(*row)
    return table


def _memory_rows(made: Plan) -> Iterator[tuple[str, str, str]]:
    deployment, memory, load = made.deployment, made.memory, made.deployment.load
    each = "each GPU" if deployment.split.gpus > 1 else "the GPU"
    yield "weights", _gib(memory.weights), f"{deployment.precision.name}; on {each}"
    yield "activations", _gib(memory.activations), f"{load.max_num_tokens:,} tokens a step; estimated"
    yield "reserve", _gib(memory.reserve), "CUDA and libraries; assumed"
    share = f"{KV_FRACTION:.0%} of what is left of {_gib(memory.total)}"
    yield "KV cache", _gib(max(memory.kv_available, 0)), share
    per_token = f"{kv_bytes_per_token(deployment):,} B each in {deployment.kv_precision}"
    together = ", on all GPUs together" if deployment.split.gpus > 1 else ""
    yield "  holds", f"{memory.kv_tokens:,}", f"tokens; {per_token}{together}"
    sequences = f"{load.batch:,} sequences of {load.input_tokens:,} + {load.output_tokens:,} tokens"
    yield "  needed", _gib(memory.kv_needed), sequences
    yield "", "[green]fits[/green]" if made.fits else "[red]does not fit[/red]", ""
    yield "largest batch", f"{made.largest_batch:,}", "sequences of that length"
    yield "largest context", f"{made.largest_context:,}", f"tokens, of {load.batch:,} sequences"


def _speed_rows(made: Plan, price: float | None) -> Iterator[tuple[str, str, str]]:
    speed = made.speed
    reached = speed.tokens_per_s * REACHED
    yield "tokens/s", f"{speed.tokens_per_s:,.0f}", f"at most (roofline; steps wait for {speed.bound})"
    yield "", f"{reached:,.0f}", f"at {REACHED:.0%} of that, what published figures reach"
    yield "first token", f"{speed.prefill_s * 1e3:,.1f} ms", "at least, of a request alone"
    yield "between tokens", f"{speed.step_s * 1e3:,.1f} ms", "at least, of the whole batch"
    if price is not None:
        least = cost_per_million_tokens(price, speed.tokens_per_s)
        expected = cost_per_million_tokens(price, reached)
        basis = f"generated tokens, at ${price:g} an hour; at least {least:,.3f}"
        yield "$ a million", f"{expected:,.3f}", basis


def _machine(deployment: Deployment) -> str:
    split, gpu = deployment.split, deployment.gpu
    if split.gpus == 1:
        return gpu.title
    parts = [f"tensor parallel {split.tensor_parallel}"]
    if split.pipeline_parallel > 1:
        parts.append(f"pipeline parallel {split.pipeline_parallel}")
    return f"{split.gpus} x {gpu.title} ({', '.join(parts)})"


def _gib(size: int) -> str:
    return f"{size / _GIB:,.2f} GiB"


def _say_what_would(made: Plan) -> None:
    if not made.alternatives:
        errors.print("it does not fit, and nothing near to it does: choose a smaller model", markup=False)
        return
    errors.print("it does not fit; with all else as it is, these do:", markup=False)
    for alternative in made.alternatives:
        errors.print(f"  {alternative.change}", markup=False, highlight=False)


def _as_json(made: Plan, price: float | None) -> dict[str, Any]:
    deployment, memory, speed = made.deployment, made.memory, made.speed
    expected = speed.tokens_per_s * REACHED
    return {
        "model_type": deployment.architecture.model_type,
        "parameters": deployment.architecture.parameters,
        "gpu": deployment.gpu.name,
        "gpus": deployment.split.gpus,
        "tensor_parallel": deployment.split.tensor_parallel,
        "pipeline_parallel": deployment.split.pipeline_parallel,
        "precision": deployment.precision.name,
        "kv_precision": deployment.kv_precision,
        "batch": deployment.load.batch,
        "input_tokens": deployment.load.input_tokens,
        "output_tokens": deployment.load.output_tokens,
        "fits": made.fits,
        "bytes_per_gpu": {
            "total": memory.total,
            "weights": memory.weights,
            "activations_estimated": memory.activations,
            "reserve_assumed": memory.reserve,
            "kv_available": memory.kv_available,
            "kv_needed": memory.kv_needed,
        },
        "kv_bytes_per_token": kv_bytes_per_token(deployment),
        "kv_tokens": memory.kv_tokens,
        "largest_batch": made.largest_batch,
        "largest_context": made.largest_context,
        "roofline": {
            "tokens_per_s": speed.tokens_per_s,
            "step_s": speed.step_s,
            "prefill_s": speed.prefill_s,
            "bound": speed.bound,
            "reached_by_published_figures": REACHED,
        },
        "usd_per_million_tokens": cost_per_million_tokens(price, expected) if price else None,
        "alternatives": [alternative.change for alternative in made.alternatives],
    }
