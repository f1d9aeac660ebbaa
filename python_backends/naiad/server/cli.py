"""`naiad serve`: the command line of the supervisor."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from naiad.server.config import CanaryPolicy, ServeConfig
from naiad.server.errors import ServerError
from naiad.server.supervisor import Supervisor

__all__ = ["SERVE_CONTEXT", "serve"]

SERVE_CONTEXT = {"allow_extra_args": True}
"""`context_settings` that `serve` must be registered with: what follows `--` is tritonserver's."""

_PORTS = "Ports"
_ENDING = "Ending and restarting"


def serve(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(
            help="cpu (the default), cpu_unary, synthetic, or another of the models' configs/PROFILE.pbtxt.",
            metavar="PROFILE",
        ),
    ] = None,
    model_repository: Annotated[Path, typer.Option(help="Triton model repository.")] = Path(
        "model_repository"
    ),
    model: Annotated[
        list[str] | None, typer.Option(help="Load only this model; may be given several times.")
    ] = None,
    model_dir: Annotated[
        Path | None,
        typer.Option(help="Prepared model to serve instead of the one the configuration names."),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all.", rich_help_panel=_PORTS)
    ] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="HTTP port.", rich_help_panel=_PORTS)] = 8000,
    grpc_port: Annotated[int, typer.Option(help="gRPC port.", rich_help_panel=_PORTS)] = 8001,
    metrics_port: Annotated[int, typer.Option(help="Prometheus port.", rich_help_panel=_PORTS)] = 8002,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, help="How long live requests may take to end.", rich_help_panel=_ENDING),
    ] = 30.0,
    canary_model: Annotated[
        str,
        typer.Option(
            help="Model that proves readiness with a real request; '' for none.",
            rich_help_panel=_ENDING,
        ),
    ] = "tensorrt_llm_bls",
    artifacts: Annotated[
        Path, typer.Option(help="Folder for the installed tritonserver, state and logs.")
    ] = Path(".artifacts"),
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all of tritonserver's output.")] = False,
) -> None:
    """Serve the model repository on a real tritonserver, and keep it serving.

    The first start installs a CPU tritonserver (55 MB) unless there is one, as in NVIDIA's containers.
    A model whose process dies or stops answering has the server restarted. Ctrl-C or SIGTERM lets live
    requests end; a second one ends at once.

    The default model on this machine's CPU:  naiad serve

    An engine that only echoes, for load tests:  naiad serve --profile synthetic

    A second server here:  naiad serve --http-port 9000 --grpc-port 9001 --metrics-port 9002

    In a container, for everyone:  naiad serve --address 0.0.0.0 --drain-seconds 120

    tritonserver's own flags follow two dashes:  naiad serve -- --log-verbose=1

    The state is in .artifacts/run/serve-HTTP_PORT.json, tritonserver's output in .artifacts/logs/.
    """
    # Plain lines on stderr: the same under a terminal, systemd and a container.
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("naiad").setLevel(logging.INFO)
    if context.args and not context.args[0].startswith("-"):
        raise typer.BadParameter(
            f"unexpected argument {context.args[0]!r}; tritonserver's flags follow two dashes"
        )
    config = ServeConfig(
        model_repository=model_repository,
        artifacts=artifacts,
        address=address,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        profile=profile,
        models=tuple(model or ()),
        model_dir=model_dir,
        triton_flags=tuple(context.args),
        canary=CanaryPolicy(model=canary_model) if canary_model else None,
        drain_limit_s=drain_seconds,
        verbose=verbose,
    )
    try:
        status = Supervisor(config, console=lambda line: typer.echo(f"  | {line}", err=True)).run()
    except ServerError as error:
        typer.secho(f"error: {error.what}", fg=typer.colors.RED, err=True)
        typer.echo(f"  -> {error.remedy}", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(status)
