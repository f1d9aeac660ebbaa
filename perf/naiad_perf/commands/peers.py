"""`naiad bench peers`: the same model and prompts through other engines, in one run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from naiad_perf.burst_display import BurstDisplay
from naiad_perf.commands.terminal import (
    FAILED,
    ArtifactsOption,
    complain,
    errors,
    new_folder,
    output,
    parse_streams,
    stoppable,
    troubles_end_it,
)
from naiad_perf.display import print_line
from naiad_perf.errors import ScenarioError
from naiad_perf.peers.contestants import LABELS, NAMES
from naiad_perf.peers.llama_cpp import LlamaCppProgram
from naiad_perf.peers.outcome import outcome_table
from naiad_perf.peers.served import Served
from naiad_perf.peers.session import Options, Outcome, hold

__all__ = ["peers"]

_IDLE_CORES = 0.05


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
    artifacts: ArtifactsOption = Path(".artifacts"),
) -> None:
    """Compare Naiad with llama.cpp's server, transformers and its own bare engine, on the same model.

    All get the same weights and the same prompts, every answer has exactly the tokens asked for, and all take
    turns in every round. The peers run in an environment of their own (1.3 GB), installed the first time.
    Their settings are tried out before, which takes some minutes. Each burst is kept as a Parquet record:
    `naiad bench report` and `naiad bench compare` read them.

    All of it:  naiad bench peers

    One peer, quickly:  naiad bench peers --only naiad,llama_cpp --rounds 3 --no-tune

    With a llama.cpp of your own:  naiad bench peers --llama-server build/bin/llama-server

    Exit status: 0 all measured; 1 something could not be measured, or not be believed; 2 an option is wrong;
    130 interrupted.
    """
    with troubles_end_it():
        options = Options(
            names=_names(only, llama_server),
            streams=parse_streams(streams),
            rounds=rounds,
            input_tokens=prompt_tokens,
            output_tokens=tokens,
            profile=profile,
            llama_server=llama_server,
            tune=tune,
            artifacts=artifacts,
            folder=new_folder(out, artifacts, "peers"),
            command=("naiad", *sys.argv[1:]),
        )
        kept = f"finished bursts are kept in {options.folder}"
        with stoppable(lambda: kept), BurstDisplay(errors) as display:
            found = hold(options, display)
    if as_json_only:
        typer.echo(json.dumps(found.as_json()))
    else:
        _show(found, options)
    doubts = _doubts(found)
    for doubt in doubts:
        complain(doubt)
    if doubts:
        raise typer.Exit(FAILED)


def _show(found: Outcome, options: Options) -> None:
    """Print tables and what must be known to read them."""
    output.print(outcome_table(found.results, LABELS, found.memory_mb, Served.name))
    lines = [f"medians of {options.rounds} rounds, lowest to highest; ratios are taken round by round"]
    for name, words in found.descriptions.items():
        lines.append(f"{LABELS[name]}: {'; '.join(words.values())}")
    for name, alike in found.alike.items():
        lines.append(f"{LABELS[name]} goes on with {alike.alike} of {alike.of} texts as we do")
    lines.append(f"idle contestants kept at most {found.idle_cores:.2f} of a processor busy")
    lines.append(f"records: {options.folder}")
    for line in lines:
        print_line(output, line)


def _doubts(found: Outcome) -> list[str]:
    """Return what makes the figures worthless."""
    doubts = [
        f"{LABELS[name]} and we answer differently: these are hardly the same weights"
        for name, alike in found.alike.items()
        if alike.alike < alike.of / 2
    ]
    if found.idle_cores > _IDLE_CORES:
        doubts.append("contestants that were idle took processor time from those that worked")
    return doubts


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
