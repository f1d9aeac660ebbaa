"""`naiad demo`: a real model answering through a real Triton, from nothing, in one command."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from naiad.cli.setup import Artifacts, explained, set_up
from naiad.server.config import ServeConfig
from naiad.server.errors import StartError
from naiad.server.preflight import require_repository
from naiad.server.state import Phase
from naiad.server.supervisor import Supervisor
from naiad_client import Client, GenerationRequest
from naiad_client.console import figures, reporting, write_answer

__all__ = ["demo"]

_errors = Console(stderr=True)
_POLL_S = 0.1


def demo(
    question: Annotated[str, typer.Argument(help="What to ask.")] = "What is the capital of Japan?",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Most tokens to answer.")] = 64,
    model_repository: Annotated[Path, typer.Option(help="Triton model repository.")] = Path(
        "model_repository"
    ),
    artifacts: Artifacts = Path(".artifacts"),
) -> None:
    """Set up what is missing, start Triton, ask one question, print the answer as it streams, and stop.

    It takes free ports, so a server that is running already is left alone.
    """
    with explained():
        require_repository(model_repository)
        set_up(artifacts)
        http, grpc, metrics = _free_ports(3)
        config = ServeConfig(
            model_repository=model_repository,
            artifacts=artifacts,
            http_port=http,
            grpc_port=grpc,
            metrics_port=metrics,
        )
        with _serving(config), reporting(), Client(f"127.0.0.1:{grpc}") as client:
            request = GenerationRequest(
                messages=[{"role": "user", "content": question}], max_tokens=max_tokens
            )
            _errors.print(f"question: {question}", style="bold", markup=False)
            with client.stream(request) as stream:
                typer.echo(figures(write_answer(stream)), err=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for unbound in sockets:
            unbound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
    finally:
        for opened in sockets:
            opened.close()


@contextmanager
def _serving(config: ServeConfig) -> Iterator[None]:
    """Run a supervised server for the length of the block."""
    supervisor = Supervisor(config)
    failure: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            failure.append(error)

    thread = threading.Thread(target=run, name="naiad-supervisor")
    started_s = time.monotonic()
    thread.start()
    try:
        with _errors.status("starting Triton and loading the model"):
            while not (supervisor.state and supervisor.state.phase is Phase.READY):
                if not thread.is_alive():
                    raise failure[0] if failure else StartError("the server ended", f"see {config.log_path}")
                time.sleep(_POLL_S)
        _errors.print(f"ready after {time.monotonic() - started_s:.1f} s", style="dim")
        yield
    finally:
        supervisor.request_stop()
        thread.join()
