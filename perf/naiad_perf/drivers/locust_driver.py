"""Locust as a load generator, over our own gRPC client. Locust itself runs in a process of its own."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from naiad_perf.drivers.base import Driven, Driver
from naiad_perf.drivers.limits import longest_s
from naiad_perf.drivers.locust_files import read_records, write_task
from naiad_perf.errors import InstallError, LoadError
from naiad_perf.processes.tool_run import last_lines, run_tool
from naiad_perf.workload.load import LoadTask

__all__ = ["LOCUSTFILE", "LocustDriver"]

LOCUSTFILE = Path(__file__).with_name("locustfile.py")


class LocustDriver(Driver):
    """Locust's users and our client's streams, all over one connection.

    Times: the client's monotonic clock, at the arrival of each message. Intended: when the same user's last
    request ended, or when the schedule said. Failures are records with the error's code; hanging up
    (`cancel_after_s`) is supported.
    """

    name: ClassVar[str] = "locust"

    def __init__(self, artifacts: Path = Path(".artifacts")) -> None:
        self._artifacts = artifacts

    @property
    def version(self) -> str:
        """Of the installed package."""
        return importlib.metadata.version("locust")

    def prepare(self, report: Callable[[str], None]) -> None:
        """Check that Locust is installed."""
        try:
            report(f"locust {self.version}")
        except importlib.metadata.PackageNotFoundError as error:
            raise InstallError("locust is not installed: pip install 'naiad[bench]'") from error

    def run(self, task: LoadTask) -> Driven:
        """See `Driver.run`."""
        if not task.prompts:
            return Driven((), (), 0.0, None)
        write_task(task)
        log = task.folder / "locust.log"
        command = (sys.executable, "-m", "naiad_perf.drivers.locust_load", str(task.folder))
        ended = run_tool(command, name=self.name, log=log, limit_s=longest_s(task))
        if ended.status != 0:
            raise LoadError(f"locust ended with status {ended.status}; its last words:\n{last_lines(log)}")
        return Driven(read_records(task), command, ended.wall_s, ended.cpu_s)
