"""`naiad bench overhead`: what serving adds to the engine, stage by stage."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from naiad_perf.display import number
from naiad_perf.drivers.registry import make_driver
from naiad_perf.environment import describe_environment
from naiad_perf.errors import PerfError, ScenarioError
from naiad_perf.metrics import Slos, figures_of
from naiad_perf.overhead.measure import TEXT_MODEL, Overhead, Turn
from naiad_perf.overhead.outcome import outcome, processor_table, speed_table, stations_table
from naiad_perf.own_server import OwnServer
from naiad_perf.peers.bare_loop import BareLoop
from naiad_perf.records import Run

__all__ = ["overhead"]

_FAILED, _WRONG = 1, 2
_HAS_BARE_LOOP = "cpu"  # the profile whose engine `naiad.serving.bare_engine` steps
_output = Console(width=None if sys.stdout.isatty() else 160)  # a pipe has no width of its own
_errors = Console(stderr=True)


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
    artifacts: Annotated[Path, typer.Option(help="Folder of servers, models, tools and results.")] = Path(
        ".artifacts"
    ),
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
    try:
        loads = _loads(streams)
        folder = _new_folder(out, artifacts)
        found, stages = _measure(profile, loads, rounds, requests, tokens, prompt_tokens, folder, artifacts)
    except ScenarioError as error:
        _complain(error)
        raise typer.Exit(_WRONG) from error
    except PerfError as error:
        _complain(error)
        raise typer.Exit(_FAILED) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error
    (folder / "overhead.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found))
        return
    _output.print(speed_table(found["stages"], stages))
    _output.print(processor_table(found["processor_ms_per_token"], stages))
    _output.print(stations_table(found["stations_ms"]))
    _output.print(
        f"medians of {rounds} rounds; ratios round by round, with lowest and highest; records: {folder}",
        style="dim", markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip


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
    driver.prepare(_tell)
    server = OwnServer(profile, artifacts, folder / "server.log")
    with ExitStack() as stack:
        bare = None
        if profile == _HAS_BARE_LOOP:
            bare = BareLoop(folder / "bare.log")
            stack.callback(bare.stop)
            bare.start(_tell)
        stack.callback(server.stop, politely=False)
        server.start()
        server.wait_healthy(TEXT_MODEL, _tell)
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
        with _progress() as progress:
            bar = progress.add_task("", total=len(job.turns()), last="")

            def before(turn: Turn) -> None:
                when = f"round {turn.round + 1}" if turn.round >= 0 else "warm-up"
                progress.update(bar, description=f"{when}: {turn.stage}, {turn.streams} streams")

            def after(turn: Turn, run: Run) -> None:
                figures = figures_of(run, Slos())
                what = f"{number(figures['tokens_per_s'])} tokens/s, TTFT {number(figures['ttft_ms_p50'])} ms"
                progress.update(bar, advance=1, last=f"last: {what}")
                if not _errors.is_terminal and turn.round >= 0:
                    _tell(f"round {turn.round + 1}, {turn.streams} streams, {turn.stage}: {what}")

            measured = job.run(before, after)
    return outcome(measured, job.stages), job.stages


def _progress() -> Progress:
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        TextColumn("[dim]{task.fields[last]}"),
        console=_errors,
        refresh_per_second=2,  # drawing takes time from what is measured
        disable=not _errors.is_terminal,
    )


def _loads(text: str) -> tuple[int, ...]:
    try:
        loads = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise ScenarioError(f"--streams wants whole numbers with commas between, not {text!r}") from error
    if loads[0] < 1:
        raise ScenarioError("--streams wants numbers of at least 1")
    return loads


def _new_folder(out: Path | None, artifacts: Path) -> Path:
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    folder = out or artifacts / "bench" / f"overhead-{now}"
    if folder.exists() and any(folder.iterdir()):
        raise ScenarioError(f"{folder} is not empty: name a new folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _tell(line: str) -> None:
    _errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _complain(error: PerfError) -> None:
    _errors.print("error:", style="bold red", end=" ")
    _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
