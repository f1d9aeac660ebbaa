"""`naiad bench peers`: the same model and prompts through other engines, in one run."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from naiad_perf.errors import PerfError, ScenarioError
from naiad_perf.peers.contestants import LABELS, NAMES
from naiad_perf.peers.display import ContestDisplay
from naiad_perf.peers.llama_cpp import LlamaCppProgram
from naiad_perf.peers.outcome import outcome_table
from naiad_perf.peers.served import Served
from naiad_perf.peers.session import Options, Outcome, hold

__all__ = ["peers"]

_FAILED, _WRONG = 1, 2
_IDLE_CORES = 0.05
_output = Console(width=None if sys.stdout.isatty() else 160)  # a pipe has no width of its own
_errors = Console(stderr=True)


def peers(
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds.")] = 5,
    streams: Annotated[str, typer.Option(help="Streams at once; several with commas.")] = "1,8,32",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 128,
    prompt_tokens: Annotated[int, typer.Option(min=4, help="Tokens of each prompt.")] = 64,
    only: Annotated[
        str | None, typer.Option(help=f"Who takes part, with commas, of: {', '.join(NAMES)}.")
    ] = None,
    llama_server: Annotated[
        Path | None,
        typer.Option(
            help="A `llama-server` that takes part too, for example one built for this very processor: "
            "the wheel's is built for any with AVX2.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    tune: Annotated[bool, typer.Option(help="Try the peers' settings out first and take the best.")] = True,
    profile: Annotated[str, typer.Option(help="Profile that we serve with.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="New folder for the records.  [default: ARTIFACTS/bench/peers-TIME]")
    ] = None,
    as_json_only: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    artifacts: Annotated[Path, typer.Option(help="Folder of servers, models, tools and results.")] = Path(
        ".artifacts"
    ),
) -> None:
    """Compare Naiad with llama.cpp's server, transformers and its own bare engine, on the same model.

    All get the same weights and the same prompts, every answer has exactly the tokens asked for, and all take
    turns in every round. The peers run in an environment of their own (1.3 GB), installed the first time.
    Their settings are tried out before, which takes some minutes. Each burst is kept as a Parquet record:
    `naiad bench report` and `naiad bench compare` read them.

    All of it:  naiad bench peers

    One peer, quickly:  naiad bench peers --only naiad,llama_cpp --rounds 3 --no-tune

    With a llama.cpp of your own:  naiad bench peers --llama-server build/bin/llama-server

    Exit status: 0 all measured; 1 something could not be measured; 2 an option is wrong; 130 interrupted.
    """
    try:
        options = Options(
            names=_names(only, llama_server),
            streams=_loads(streams),
            rounds=rounds,
            input_tokens=prompt_tokens,
            output_tokens=tokens,
            profile=profile,
            llama_server=llama_server,
            tune=tune,
            artifacts=artifacts,
            folder=_new_folder(out, artifacts),
            command=("naiad", *sys.argv[1:]),
        )
        with _stoppable(), ContestDisplay(_errors) as display:
            found = hold(options, display)
    except ScenarioError as error:
        _complain(error)
        raise typer.Exit(_WRONG) from error
    except PerfError as error:
        _complain(error)
        raise typer.Exit(_FAILED) from error
    except KeyboardInterrupt as error:
        _errors.print(f"stopped; finished bursts are kept in {options.folder}", style="dim", soft_wrap=True)
        raise typer.Exit(128 + (error.args[0] if error.args else signal.SIGINT)) from None
    if as_json_only:
        typer.echo(json.dumps(found.as_json()))
    else:
        _show(found, options)


def _show(found: Outcome, options: Options) -> None:
    """Print tables and what must be known to read them."""
    _output.print(outcome_table(found.results, LABELS, found.memory_mb, Served.name))
    lines = [f"medians of {options.rounds} rounds, lowest to highest; ratios are taken round by round"]
    for name, words in found.descriptions.items():
        lines.append(f"{LABELS[name]}: {'; '.join(words.values())}")
    for name, alike in found.alike.items():
        lines.append(f"{LABELS[name]} goes on with {alike.alike} of {alike.of} texts as we do")
    lines.append(f"idle contestants kept at most {found.idle_cores:.2f} of a processor busy")
    lines.append(f"records: {options.folder}")
    for line in lines:
        _output.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    for name, alike in found.alike.items():
        if alike.alike < alike.of / 2:
            _complain(
                PerfError(f"{LABELS[name]} and we answer differently: these are hardly the same weights")
            )
    if found.idle_cores > _IDLE_CORES:
        _complain(PerfError("contestants that were idle took processor time from those that worked"))


def _loads(text: str) -> tuple[int, ...]:
    try:
        loads = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        loads = ()
    if not loads or loads[0] < 1:
        raise ScenarioError(f"--streams {text}: give numbers from 1, for example 1,8,32")
    return loads


def _names(only: str | None, llama_server: Path | None) -> tuple[str, ...]:
    if only is None:
        return tuple(name for name in NAMES if name != LlamaCppProgram.name or llama_server is not None)
    names = tuple(part.strip() for part in only.split(","))
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ScenarioError(f"--only: there is no {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if LlamaCppProgram.name in names and llama_server is None:
        raise ScenarioError(f"{LlamaCppProgram.name} needs --llama-server, the path of the program")
    return names


def _new_folder(out: Path | None, artifacts: Path) -> Path:
    now = datetime.now(timezone.utc)
    folder = out if out is not None else artifacts / "bench" / f"peers-{now:%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ScenarioError(f"{folder} is not empty: give --out a new folder")
    except OSError as error:
        raise PerfError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end everything as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _complain(error: Exception) -> None:
    _errors.print("error:", style="bold red", end=" ")
    _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
