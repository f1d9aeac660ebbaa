"""`naiad bench perf-analyzer`, `aiperf` and `locust`: the load generators alone, each by one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from naiad_perf.commands.terminal import tell, troubles_end_it
from naiad_perf.drivers.aiperf_driver import aiperf_environment, tool
from naiad_perf.drivers.locust_driver import LOCUSTFILE, LocustDriver
from naiad_perf.processes.foreground import run_in_foreground
from naiad_perf.tools import perf_analyzer

__all__ = ["aiperf", "locust", "run_perf_analyzer"]

_Artifacts = Annotated[Path, typer.Option(help="Where the program is kept once installed.")]


def run_perf_analyzer(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="perf_analyzer's own arguments, after `--`.", metavar="-- ARGUMENTS"),
    ] = None,
    artifacts: _Artifacts = Path(".artifacts"),
) -> None:
    """Run NVIDIA's perf_analyzer; the first time it is fetched, with newer C libraries where it needs them.

    For example:

    - `naiad bench perf-analyzer -- --help`

    - `naiad bench perf-analyzer -- -m ensemble -i grpc -u localhost:8001 --streaming --input-data in.json`
    """
    with troubles_end_it():
        raise typer.Exit(perf_analyzer.run(arguments or [], artifacts, tell))


def aiperf(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="aiperf's own arguments, after `--`.", metavar="-- ARGUMENTS")
    ] = None,
    artifacts: _Artifacts = Path(".artifacts"),
) -> None:
    """Run NVIDIA's aiperf; the first time it is installed into an environment of its own (840 MB).

    For example:

    - `naiad bench aiperf -- profile --help`

    - `naiad bench aiperf -- profile --model tensorrt_llm_bls --url localhost:8000 --streaming
      --endpoint-type template --endpoint /v2/models/tensorrt_llm_bls/generate_stream
      --extra-inputs 'payload_template:{"text_input": {{ text|tojson }}}' --extra-inputs max_tokens:64
      --extra-inputs stream:true --extra-inputs response_field:text_output
      --tokenizer .artifacts/models/default --concurrency 8 --request-count 80 --isl 64`
    """
    environment = tool(artifacts)
    with troubles_end_it():
        environment.install(tell)
    command = [str(environment.python), "-m", "aiperf", *(arguments or ["--help"])]
    raise typer.Exit(run_in_foreground(command, aiperf_environment("localhost:8000")))


def locust(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Locust's own arguments, after `--`.", metavar="-- ARGUMENTS")
    ] = None,
) -> None:
    """Run Locust on a server, over our gRPC client: with its web page on port 8089, or without.

    Requests, TTFT and ITL are rows of their own; failures are told apart by code. For example:

    - `naiad bench locust`, then open http://localhost:8089

    - `naiad bench locust -- --host 127.0.0.1:8001 --autostart --users 16 --answer-tokens 128`

    - `naiad bench locust -- --headless --users 16 --spawn-rate 16 --run-time 1m --csv result`

    - `naiad bench locust -- --help`: model, prompts, lengths and hanging up are options in the group Naiad
    """
    with troubles_end_it():
        LocustDriver().prepare(lambda _line: None)
    command = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), *(arguments or [])]
    raise typer.Exit(run_in_foreground(command))
