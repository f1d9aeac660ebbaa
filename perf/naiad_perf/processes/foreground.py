"""Running another program as if it were this one: on this terminal, with its own answer to Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

__all__ = ["run_in_foreground"]


def run_in_foreground(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a program on this terminal and return its exit status.

    Ctrl-C reaches the program, which ends as it sees fit; a signal that kills it gives 128 plus the signal's
    number, as in a shell.

    Args:
        command: the program and its arguments.
        env: its environment; this process's if None.
    """
    running: list[subprocess.Popen[bytes]] = []
    asked_to_stop: list[int] = []

    def stop(number: int, _frame: object) -> None:
        asked_to_stop.append(number)
        for process in running:
            process.terminate()

    with (
        _handled(signal.SIGINT, lambda *_: None),  # the terminal sends it to the program as well
        _handled(signal.SIGTERM, stop),
        subprocess.Popen(command, env=env) as process,
    ):
        running.append(process)
        if asked_to_stop:  # while it was being started
            process.terminate()
        status = process.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _handled(number: signal.Signals, handler: Callable[..., None]) -> Iterator[None]:
    """Handle a signal this way for a while; unlike an ignored one, a child does not inherit it."""
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)
