"""A real process whose command line looks like that of Triton's Python stub."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.harness.polling import poll


@contextmanager
def stub_process(folder: Path, model: str, region: str, server_pid: int) -> Iterator[psutil.Process]:
    """Run one for the length of the block; it ends by itself when its input closes."""
    script = folder / model / "1" / "model.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("read -r line\n")  # run by a shell under the stub's name
    command = [
        "/backends/python/triton_python_backend_stub",
        str(script),
        region,
        "1024",
        "1024",
        str(server_pid),
    ]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        try:
            started = psutil.Process(process.pid)
            poll(lambda: bool(started.cmdline()))  # empty for a moment after it was started
            yield started
        finally:
            process.kill()


def dead_pid() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    return process.pid
