"""llama.cpp's server with continuous batching, asked over HTTP; that of the xllamacpp wheel, or a program."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from naiad_perf.errors import PerfError
from naiad_perf.peers.closed_loop import closed_loop
from naiad_perf.peers.completion_stream import ask, is_healthy
from naiad_perf.peers.line_process import LineProcess
from naiad_perf.peers.llama_settings import AS_FETCHED, LlamaSettings
from naiad_perf.peers.peer import Peer, Tell
from naiad_perf.peers.weights import SourceWeights, written_as
from naiad_perf.processes.family import ProcessFamily
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import Prompt

__all__ = ["LlamaCppProgram", "LlamaCppServer", "LlamaCppWheel"]

_START_LIMIT_S = 120.0
_BURST_LIMIT_S = 600.0
_POLL_S = 0.1
_PROGRAM = Path(__file__).parent / "programs" / "llama_cpp_server.py"
# Ends the program when our end of the pipe is closed, however we ended.
_GUARDED = 'exec 3<&0; "$@" >&2 3<&- & child=$!; { read -r _ <&3; kill -s KILL $child; } & wait $child'


class LlamaCppServer(Peer):
    """Base of both: weights, settings, and asking."""

    def __init__(
        self,
        source: SourceWeights,
        settings: LlamaSettings,
        slots: int,
        context: int,
        folder: Path,
        log: Path,
    ) -> None:
        """Prepare; nothing starts.

        Args:
            source: the weights.
            settings: how to run.
            slots: requests at once that it is set up for.
            context: tokens of the longest prompt and its answer.
            folder: for weights in other formats.
            log: file for what it says.
        """
        self._source = source
        self._settings = settings
        self._slots = slots
        self._context = context
        self._folder = folder
        self._log = log
        self._address = ("", 0)
        self._build = ""
        self._process: LineProcess | None = None

    def start(self, tell: Tell) -> None:
        """See `Peer.start`."""
        self._process, self._address, self._build = self._launch(self._weights(tell))
        deadline_s = time.monotonic() + _START_LIMIT_S
        while not asyncio.run(is_healthy(*self._address)):
            if self._process.ended or time.monotonic() > deadline_s:
                self.stop()
                raise PerfError(f"{self.label} does not start; it says why in {self._log}")
            time.sleep(_POLL_S)

    def _weights(self, tell: Tell) -> Path:
        form = self._settings.weights
        if form in (AS_FETCHED, self._source.format):
            return self._source.gguf
        tell(f"{self.label}: weights as {form}")
        return written_as(self._source.gguf, form, self._folder)

    def _launch(self, model: Path) -> tuple[LineProcess, tuple[str, int], str]:
        """Start the process for these weights; return it, where it listens, and what was built how."""
        raise NotImplementedError

    def stop(self) -> None:
        """See `Peer.stop`."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def processes(self) -> ProcessFamily:
        """See `Peer.processes`."""
        return ProcessFamily(self._process.pid if self._process else -1)

    @property
    def description(self) -> dict[str, str]:
        """See `Peer.description`."""
        form = self._source.format if self._settings.weights == AS_FETCHED else self._settings.weights
        return {
            "version": self._build,
            "settings": f"{self._settings}, {self._slots} slots, HTTP",
            "weights": form,
        }

    def burst(self, prompts: Sequence[Prompt], streams: int) -> tuple[RequestRecord, ...]:
        """See `Peer.burst`."""
        host, port = self._address
        return asyncio.run(
            closed_loop(lambda prompt: ask(host, port, prompt), prompts, streams, _BURST_LIMIT_S)
        )

    def continuation(self, prompt: Prompt) -> str | None:
        """See `Peer.continuation`."""
        return asyncio.run(ask(*self._address, prompt)).text


class LlamaCppWheel(LlamaCppServer):
    """The server of the xllamacpp wheel, through its Python class.

    The wheel's code is compiled for processors with AVX2, and uses nothing newer.
    """

    name = "llama_cpp"
    label = "llama.cpp, wheel"

    def __init__(
        self,
        source: SourceWeights,
        settings: LlamaSettings,
        slots: int,
        context: int,
        folder: Path,
        log: Path,
        *,
        python: Path,
    ) -> None:
        """Prepare as the base does; `python` is the interpreter of the peers' environment."""
        super().__init__(source, settings, slots, context, folder, log)
        self._python = python

    def _launch(self, model: Path) -> tuple[LineProcess, tuple[str, int], str]:
        parameters = self._settings.parameters(model, self._slots, self._context)
        command = [str(self._python), str(_PROGRAM), json.dumps(parameters)]
        process = LineProcess(command, name=self.label, log=self._log, env=self._settings.environment)
        told = process.answer(_START_LIMIT_S)
        address = urlsplit(told["address"])
        build = f"xllamacpp {told['version']} ({_instructions(told['instructions'])})"
        return process, (address.hostname or "", address.port or 0), build


class LlamaCppProgram(LlamaCppServer):
    """A `llama-server` that somebody built, for example for exactly this processor."""

    name = "llama_cpp_program"
    label = "llama.cpp, own build"

    def __init__(
        self,
        source: SourceWeights,
        settings: LlamaSettings,
        slots: int,
        context: int,
        folder: Path,
        log: Path,
        *,
        program: Path,
    ) -> None:
        """Prepare as the base does; `program` is the `llama-server`."""
        super().__init__(source, settings, slots, context, folder, log)
        self._program = program

    def _launch(self, model: Path) -> tuple[LineProcess, tuple[str, int], str]:
        port = _free_port()
        arguments = self._settings.arguments(model, self._slots, self._context, port)
        command = ["/bin/sh", "-c", _GUARDED, "llama-server-guard", str(self._program), *arguments]
        process = LineProcess(command, name=self.label, log=self._log, env=self._settings.environment)
        return process, ("127.0.0.1", port), self._version()

    def _version(self) -> str:
        """Return what the program says it is, and the instructions that it says it uses."""
        try:
            done = subprocess.run(
                [str(self._program), "--version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PerfError(f"{self._program} does not run: {error}") from error
        found = re.search(r"version: (.*)", done.stdout + done.stderr)
        return f"llama-server {found[1] if found else 'of unknown version'}"


def _instructions(system_info: str) -> str:
    """Return the names that llama.cpp's line of features has set to 1."""
    return " ".join(re.findall(r"(\w+) = 1", system_info))


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])
