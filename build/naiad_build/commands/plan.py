"""`naiad build plan`: what fits, how far it goes, what it costs at best."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from naiad_build.commands.terminal import errors, explained, output
from naiad_build.errors import PlanError
from naiad_build.plan.architecture import read_architecture
from naiad_build.plan.deployment import Deployment, Load, Split, split_over
from naiad_build.plan.machines import GPUS
from naiad_build.plan.memory import KV_FRACTION, kv_bytes_per_token
from naiad_build.plan.planner import Plan, make_plan
from naiad_build.plan.precisions import KV_BYTES, PRECISIONS
from naiad_build.plan.roofline import REACHED, cost_per_million_tokens
from naiad_build.profile import PROFILES_FOLDER, EngineBuild, Machine, Profile, load_profile

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
        stated = load_profile(PROFILES_FOLDER / f"{profile}.yaml")
        machine, engine = _sections(stated, gpu, gpus, precision, kv_precision)
        deployment = _deployment(checkpoint, machine, engine, batch, input_tokens, output_tokens)
        made = make_plan(deployment)
    same_machine = machine == stated.machine
    price = hourly_price if hourly_price is not None else stated.hourly_price_usd if same_machine else None
    if json_output:
        typer.echo(json.dumps(_as_json(made, price), allow_nan=False))
    else:
        output.print(_table(made, price))
    if not made.fits:
        _say_what_would(made)
        raise typer.Exit(1)


def _sections(
    profile: Profile, gpu: str | None, gpus: int | None, precision: str | None, kv_precision: str | None
) -> tuple[Machine, EngineBuild]:
    """Return the profile's machine and engine with what was said on top."""
    if profile.machine is None or profile.engine is None:
        known = sorted(path.stem for path in PROFILES_FOLDER.glob("*.yaml"))
        able = [name for name in known if load_profile(PROFILES_FOLDER / f"{name}.yaml").machine]
        raise PlanError(f"profile {profile.name} names no GPU to plan for; these do: {', '.join(able)}")
    machine = {"gpu": gpu or profile.machine.gpu, "count": gpus or profile.machine.count}
    engine = profile.engine.model_dump()
    if machine["count"] != profile.machine.count:
        engine["tensor_parallel"] = None
    engine["precision"] = precision or engine["precision"]
    engine["kv_precision"] = kv_precision or engine["kv_precision"]
    try:
        return Machine.model_validate(machine), EngineBuild.model_validate(engine)
    except ValidationError as error:
        fault = error.errors()[0]
        option = {"gpu": "--gpu", "precision": "--precision", "kv_precision": "--kv-precision"}
        said = str(fault["msg"]).removeprefix("Value error, ")
        raise PlanError(f"{option[str(fault['loc'][0])]}: {said}") from None


def _deployment(
    checkpoint: Path,
    machine: Machine,
    engine: EngineBuild,
    batch: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
) -> Deployment:
    architecture = read_architecture(checkpoint.expanduser())
    if engine.tensor_parallel is None:
        split = split_over(architecture, machine.count)
    else:
        split = Split(engine.tensor_parallel, machine.count // engine.tensor_parallel)
    return Deployment(
        architecture=architecture,
        gpu=GPUS[machine.gpu],
        split=split,
        precision=PRECISIONS[engine.precision],
        kv_precision=engine.kv_precision,
        load=Load(
            batch=batch or engine.max_batch_size,
            input_tokens=input_tokens or engine.max_input_len,
            output_tokens=output_tokens or engine.max_seq_len - engine.max_input_len,
            max_num_tokens=engine.max_num_tokens,
        ),
    )


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
    yield "  holds", f"{memory.kv_tokens:,}", f"tokens; {per_token}, on all GPUs together"
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
