"""A contestant that answers at once, at times it makes up, and writes down what it was asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from naiad_perf.peers.peer import Peer, Tell
from naiad_perf.processes.family import ProcessFamily
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import Prompt

__all__ = ["ScriptedPeer"]

MS = 1_000_000


class ScriptedPeer(Peer):
    """Makes a token a millisecond for each stream, or every `step_ms`; all are there at the start.

    Args:
        name: as a contestant's.
        step_ms: between two tokens of a stream.
        spoil: what becomes of its records before they are handed over.
        says: how it goes on with a text.
    """

    label = "scripted"

    def __init__(
        self,
        name: str,
        step_ms: int = 1,
        *,
        spoil: Callable[[RequestRecord], RequestRecord] = lambda record: record,
        says: Callable[[str], str | None] = str.upper,
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.label = name.title()  # type: ignore[misc]
        self.step_ms = step_ms
        self.spoil = spoil
        self.says = says
        self.bursts: list[tuple[tuple[Prompt, ...], int]] = []
        self.started = False

    def start(self, tell: Tell) -> None:
        self.started = True

    def stop(self) -> None:
        self.started = False

    @property
    def processes(self) -> ProcessFamily:
        return ProcessFamily(os.getpid())

    @property
    def description(self) -> dict[str, str]:
        return {"version": f"{self.name} 1.0", "settings": "usual"}

    def burst(self, prompts: Sequence[Prompt], streams: int) -> tuple[RequestRecord, ...]:
        self.bursts.append((tuple(prompts), streams))
        records = []
        for index, prompt in enumerate(prompts):
            begun_ms = index // streams * prompt.output_tokens * self.step_ms
            times = [(begun_ms + step * self.step_ms) * MS for step in range(1, prompt.output_tokens + 1)]
            record = RequestRecord(
                index, begun_ms * MS, begun_ms * MS, tuple(times), (1,) * len(times), times[-1]
            )
            records.append(self.spoil(replace(record, input_tokens=len(prompt.ids))))
        return tuple(records)

    def continuation(self, prompt: Prompt) -> str | None:
        return self.says(prompt.text)
