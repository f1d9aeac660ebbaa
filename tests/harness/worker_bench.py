"""An engine whose steps happen in a process of its own, with eyes on that process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from naiad.contract.generation import GenerationRequest, SamplingParams
from naiad.engines import EngineLimits, StepLoop
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.worker import WorkerStepper
from tests.harness.polling import poll
from tests.harness.recording_sink import RecordingSink
from tests.harness.synthetic_worker import write_python

__all__ = ["LIMITS", "WorkerBench", "child_processes", "request", "with_synthetic_worker"]

LIMITS = EngineLimits(vocab_size=1000, max_seq_len=10**6, kv_capacity_tokens=10**6, end_ids=frozenset({0}))
IDLE_S = 0.4
WAKES_AT_REST = 20  # what was under way may still end; one that steps wakes up 200 times


def with_synthetic_worker(monkeypatch: pytest.MonkeyPatch, folder: Path) -> OpenVinoSettings:
    """Make workers run without a model; return settings for them, whose model directory is in `folder`."""
    monkeypatch.setattr(sys, "executable", str(write_python(folder / "python-synthetic")))
    model = folder / "model"
    model.mkdir()
    return OpenVinoSettings(model, kv_tokens=1024, max_sequences=8)


def request(name: str, prompt: Sequence[int], max_tokens: int, **sampling: Any) -> GenerationRequest:
    """Make a request without a deadline."""
    return GenerationRequest(name, tuple(prompt), SamplingParams(max_tokens, **sampling))


def child_processes() -> set[int]:
    """Return the ids of our children, ended but unclaimed ones included."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


class WorkerBench:
    """A loop over a worker."""

    def __init__(self, settings: OpenVinoSettings) -> None:
        self._others = child_processes()
        self.loop = StepLoop(WorkerStepper(settings, LIMITS), max_waiting=8, poll_period_s=0.002)

    @property
    def process(self) -> psutil.Process:
        """The one worker there is."""
        (pid,) = child_processes() - self._others
        return psutil.Process(pid)

    @property
    def gone(self) -> bool:
        """Whether no process of ours is left, not even an unclaimed one."""
        return child_processes() <= self._others

    def submit(self, name: str, prompt: Sequence[int], max_tokens: int, **sampling: Any) -> RecordingSink:
        """Submit a request."""
        sink = RecordingSink()
        self.loop.submit(request(name, prompt, max_tokens, **sampling), sink)
        return sink

    def running(self, name: str, prompt: Sequence[int] = (5, 6, 7)) -> RecordingSink:
        """Submit a request that will not end in this test's time and wait for its first token."""
        sink = self.submit(name, prompt, 10**5)
        poll(lambda: bool(sink.ids))
        return sink

    def answers(self) -> bool:
        """Whether a new request gets its whole answer."""
        sink = self.submit("probe", (8, 9), 3)
        sink.reason()
        return sink.ids == [8, 9, 8]

    def rests(self) -> bool:
        """Whether the worker lives, and neither works nor wakes up for a while."""
        process = self.process
        before, woken = process.cpu_times(), process.num_ctx_switches().voluntary
        try:
            process.wait(IDLE_S)
        except psutil.TimeoutExpired:
            after = process.cpu_times()
            worked_s = after.user + after.system - before.user - before.system
            return worked_s < IDLE_S / 8 and process.num_ctx_switches().voluntary - woken < WAKES_AT_REST
        return False
