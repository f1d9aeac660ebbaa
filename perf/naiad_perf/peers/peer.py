"""One contestant: something that generates tokens from prompts, started, asked and stopped the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar

from naiad_perf.processes.family import ProcessFamily
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import Prompt

__all__ = ["Peer", "Tell"]

Tell = Callable[[str], None]
"""Takes a line for the person at the terminal."""


class Peer(ABC):
    """One contestant, loaded from `__enter__` to `__exit__`, and asked in bursts.

    Attributes:
        name: stable; the subject in records.
        label: for people.
    """

    name: ClassVar[str]
    label: ClassVar[str]

    @abstractmethod
    def start(self, tell: Tell) -> None:
        """Load the model and return when a request would succeed.

        Args:
            tell: called with what takes long.

        Raises:
            PerfError: it does not start; the message says what to do.
        """

    @abstractmethod
    def stop(self) -> None:
        """End every process that `start` started; harmless before it and twice."""

    @property
    @abstractmethod
    def processes(self) -> ProcessFamily:
        """Its processes, once started, without the client that measures."""

    @property
    @abstractmethod
    def description(self) -> dict[str, str]:
        """Version, weights and settings in words, once started; for records and reports."""

    @abstractmethod
    def burst(self, prompts: Sequence[Prompt], streams: int) -> tuple[RequestRecord, ...]:
        """Answer all prompts, at most `streams` at once, each with exactly as many tokens as it asks for.

        Returns:
            A record for each prompt, in order; times on this machine's monotonic clock.

        Raises:
            PerfError: one of them failed.
        """

    @abstractmethod
    def continuation(self, prompt: Prompt) -> str | None:
        """Return the most likely continuation as text; None for an engine that only speaks in numbers.

        Raises:
            PerfError: it failed.
        """

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
