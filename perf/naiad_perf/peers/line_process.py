"""A child process that is asked and answers in lines of JSON, and dies with us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from naiad_perf.errors import PerfError
from naiad_perf.processes.tool_run import last_lines

__all__ = ["LineProcess"]

_END_LIMIT_S = 5.0


class LineProcess:
    """Reads one JSON object a line on stdin, writes one a line on stdout, ends when stdin does.

    It runs in a session of its own, so that Ctrl-C is for us, who then end it.
    """

    def __init__(
        self, command: Sequence[str], *, name: str, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            command: the program and its arguments.
            name: what messages call it.
            log: file for its stderr; appended to.
            env: added to this process's environment.

        Raises:
            PerfError: it cannot be started.
        """
        self._name = name
        self._log = log
        with log.open("ab") as errors:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
            except OSError as error:
                raise PerfError(f"{name} does not start: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def ask(self, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Write a line and return the answer.

        Raises:
            PerfError: it died, took too long, or answered with something else; it is ended then.
        """
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(json.dumps(question).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._died() from None
        return self.answer(limit_s)

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Return the next line that it writes; raises as `ask`."""
        late = threading.Timer(limit_s, self._kill)
        late.start()
        try:
            line = self._process.stdout.readline() if self._process.stdout is not None else b""
        finally:
            in_time = late.is_alive()
            late.cancel()
        if not in_time:
            self.stop()
            raise PerfError(f"{self._name} did not answer within {limit_s:.0f} s")
        if not line:
            raise self._died()
        try:
            content = json.loads(line)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            self.stop()
            raise PerfError(f"{self._name} answered {line[:200]!r}, which is no JSON object")
        if "error" in content:
            raise PerfError(f"{self._name}: {content['error']}")
        return content

    def stop(self) -> None:
        """End it and what it started; harmless twice."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _died(self) -> PerfError:
        self.stop()
        return PerfError(
            f"{self._name} ended with status {self._process.returncode}; its last lines:\n"
            f"{last_lines(self._log)}"
        )
