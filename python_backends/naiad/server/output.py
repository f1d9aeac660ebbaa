"""tritonserver's output: all of it to a file, the lines that matter to the console."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["OutputPump"]

_MAX_BYTES = 20 << 20
_KEPT_ERRORS = 20
_LAST_LINES_S = 2.0
# Errors by name only: what a tritonserver without a GPU always says.
_NOISE = re.compile(
    r"CudaDriverHelper has not been|pinned memory pool will not be|DCGM unable to start"
    r"|unable to create stream for .*CUDA driver|no pinned memory pool, falling back"
)
_LEVEL = re.compile(r"^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] ?(.*)$")
# Where in a model's Python an error was raised: for the file, not for the console.
_TRACE = re.compile(r"(?:\\n)+At:(?:\\n  [^\"\\]*)+(?:\\n)?")
_log = logging.getLogger(__name__)


class OutputPump:
    """Copies an output to `path` on a thread, rotated to `<path>.1`; a full disk costs lines, not service."""

    def __init__(self, path: Path, console: Callable[[str], None], *, verbose: bool) -> None:
        """`console` gets the lines that matter (errors and warnings), or all of them when `verbose`."""
        self._path = path
        self._console = console
        self._verbose = verbose
        self._errors: deque[str] = deque(maxlen=_KEPT_ERRORS)
        self._file: IO[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._size = 0
        self._warned = False

    def start(self, output: IO[bytes], heading: str) -> None:
        """Begin with a `heading` line; ends by itself when `output` does."""
        self._errors.clear()
        self._write(f"==== {time.strftime('%Y-%m-%d %H:%M:%S')} {heading}\n".encode())
        self._thread = threading.Thread(target=self._run, args=(output,), name="naiad-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the output's end, when all its writers are dead; then every line was handled."""
        if self._thread is not None:
            self._thread.join(timeout=_LAST_LINES_S)

    @property
    def errors(self) -> tuple[str, ...]:
        """The latest error lines, without their time stamps."""
        return tuple(self._errors)

    def _run(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._write(line)
                self._look(line.decode(errors="replace").rstrip())
        self._close()

    def _look(self, line: str) -> None:
        found = _LEVEL.match(line)
        level, text = found.groups() if found else ("", line)
        text = _TRACE.sub("", text)
        matters = level in ("E", "F", "W") and not _NOISE.search(text)
        if matters and level != "W":
            self._errors.append(text)
        if self._verbose:
            self._console(line)
        elif matters:
            self._console(text)

    def _write(self, line: bytes) -> None:
        try:
            if self._file is None or self._size > _MAX_BYTES:
                self._open()
            if self._file is not None:
                self._file.write(line)
                self._size += len(line)
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning("cannot write %s (%s); the server goes on without its log", self._path, error)

    def _open(self) -> None:
        self._close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _MAX_BYTES:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        # Unbuffered: the log must be whole when the supervisor is killed.
        self._file = self._path.open("ab", buffering=0)
        self._size = self._path.stat().st_size

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
