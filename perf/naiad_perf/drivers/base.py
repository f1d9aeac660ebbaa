"""What every load generator is to the sweep: give it a load, get records back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import LoadTask

__all__ = ["Driven", "Driver"]


@dataclass(frozen=True, slots=True)
class Driven:
    """What a driver did.

    Attributes:
        requests: a record of every request it sent, warm-up included, in order of `index`.
        command: what was started.
        wall_s: seconds it ran.
        client_cpu_s: processor time of its processes; None where not known.
    """

    requests: tuple[RequestRecord, ...]
    command: tuple[str, ...]
    wall_s: float
    client_cpu_s: float | None


class Driver(ABC):
    """A load generator, run in a process of its own."""

    name: ClassVar[str]
    """As written in a scenario."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Version of the load generator."""

    @abstractmethod
    def prepare(self, report: Callable[[str], None]) -> None:
        """Install what is missing; at once when nothing is.

        Raises:
            InstallError: it cannot be installed or does not run here; the message says what to do.
        """

    @abstractmethod
    def run(self, task: LoadTask) -> Driven:
        """Make the load and wait for its end; on KeyboardInterrupt, end what was started and raise it on.

        Raises:
            LoadError: the generator failed as a whole: not started, crashed, or its output makes no sense.
                A request that failed is a record, not an error.
            UnsupportedLoad: it cannot make this load; the message names the driver and what it lacks.
        """
