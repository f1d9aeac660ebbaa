"""`naiad bench overhead`: what serving adds to the engine, stage by stage."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from naiad_perf.burst_display import BurstDisplay
from naiad_perf.commands.terminal import (
    ArtifactsOption,
    errors,
    new_folder,
    output,
    parse_streams,
    stoppable,
    tell,
    troubles_end_it,
)
from naiad_perf.display import print_line
from naiad_perf.drivers.registry import make_driver
from naiad_perf.environment import describe_environment
from naiad_perf.overhead.measure import TEXT_MODEL, Overhead
from naiad_perf.overhead.outcome import outcome, processor_table, speed_table, stations_table
from naiad_perf.peers.bare_loop import BareLoop
from naiad_perf.servers.own_server import OwnServer

__all__ = ["overhead"]

_HAS_BARE_LOOP = "cpu"  # the profile whose engine `naiad.serving.bare_engine` steps


def overhead(
    profile: Annotated[
        str, typer.Option(help="Profile served. `cpu` is set against the engine without Triton as well.")
    ] = "cpu",
    streams: Annotated[str, typer.Option(help="Streams at once; several with commas.")] = "1,8,32,128",
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds.")] = 5,
    requests: Annotated[int, typer.Option(min=1, help="Requests a stream in each burst.")] = 2,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 64,
    prompt_tokens: Annotated[int, typer.Option(min=4, help="Tokens of each prompt.")] = 32,
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for the records.  [default: ARTIFACTS/bench/overhead-TIME]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    artifacts: ArtifactsOption = Path(".artifacts"),
) -> None:
    """Show what serving adds to the engine, stage by stage.

    The same prompts go through the engine in a bare loop, through model `tensorrt_llm` (Triton and the
    engine's model), and through `tensorrt_llm_bls` (text as well), in turn, every prompt new. Shown are
    tokens/s and latencies of each stage, the processor time that each process takes for a token, and how long
    the first token takes from station to station. The load generator is perf_analyzer.

    The default:  naiad bench overhead

    The path's own cost, with an engine that takes no time:  naiad bench overhead --profile synthetic

    Exit status: 0 measured; 1 something could not be measured; 2 an option is wrong; 130 interrupted.
    """
    with troubles_end_it():
        loads = parse_streams(streams)
        folder = new_folder(out, artifacts, "overhead")
        with stoppable(lambda: f"finished bursts are kept in {folder}"):
            found, stages = _measure(
                profile, loads, rounds, requests, tokens, prompt_tokens, folder, artifacts
            )
    (folder / "overhead.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found))
        return
    output.print(speed_table(found["stages"], stages))
    output.print(processor_table(found["processor_ms_per_token"], stages))
    output.print(stations_table(found["stations_ms"]))
    print_line(
        output,
        f"medians of {rounds} rounds; ratios round by round, with lowest and highest; records: {folder}",
    )


def _measure(
    profile: str,
    streams: tuple[int, ...],
    rounds: int,
    requests: int,
    tokens: int,
    prompt_tokens: int,
    folder: Path,
    artifacts: Path,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    driver = make_driver("perf_analyzer", artifacts)
    driver.prepare(tell)
    server = OwnServer(profile, artifacts, folder / "server.log")
    with ExitStack() as stack:
        bare = None
        if profile == _HAS_BARE_LOOP:
            bare = BareLoop(folder / "bare.log")
            stack.callback(bare.stop)
            bare.start(tell)
        stack.callback(server.stop, politely=False)
        server.start()
        server.wait_healthy(TEXT_MODEL, tell)
        job = Overhead(
            server=server,
            bare=bare,
            driver=driver,
            streams=streams,
            rounds=rounds,
            requests_per_stream=requests,
            input_tokens=prompt_tokens,
            output_tokens=tokens,
            profile=profile,
            folder=folder,
            environment=describe_environment(),
            command=("naiad", *sys.argv[1:]),
        )
        with BurstDisplay(errors) as display:
            display.begin(len(job.turns()))
            measured = job.run(display.before, display.after)
    return outcome(measured, job.stages), job.stages
