"""A step loop over a manual stepper, a recording sink for each request; promises are checked at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines import EngineLimits, StepLoop
from tests.harness.manual_stepper import ManualClock, ManualStepper
from tests.harness.recording_sink import RecordingSink

LIMITS = EngineLimits(vocab_size=1000, max_seq_len=128, kv_capacity_tokens=1024, end_ids=frozenset({0}))


class RecordingObserver:
    """Keeps what the loop reports, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def scheduled(self, queue_s: float) -> None:
        self.events.append(("scheduled", queue_s))

    def first_token(self, ttft_s: float) -> None:
        self.events.append(("first", ttft_s))

    def next_tokens(self, interval_s: float, count: int) -> None:
        self.events.append(("next", interval_s, count))

    def finished(self, prompt_tokens: int, output_tokens: int, reason: FinishReason) -> None:
        self.events.append(("finished", prompt_tokens, output_tokens, reason))


@dataclass
class Bench:
    """One loop under test and everything around it."""

    stepper: ManualStepper
    loop: StepLoop
    clock: ManualClock
    observer: RecordingObserver
    sinks: list[RecordingSink] = field(default_factory=list)

    def submit(
        self,
        name: str,
        *,
        prompt: tuple[int, ...] = (5, 6, 7),
        deadline_s: float | None = None,
        sink: RecordingSink | None = None,
        streaming: bool = True,
        **sampling: Any,
    ) -> RecordingSink:
        """Submit a request; `deadline_s` counts from now."""
        sampling.setdefault("max_tokens", 16)
        deadline = None if deadline_s is None else self.clock() + deadline_s
        sink = sink or RecordingSink()
        self.loop.submit(
            GenerationRequest(name, prompt, SamplingParams(**sampling), deadline, streaming), sink
        )
        self.sinks.append(sink)
        return sink

    def running(self, name: str, **options: Any) -> RecordingSink:
        """Submit a request and wait until the engine has it."""
        sink = self.submit(name, **options)
        self.stepper.wait_for(name)
        return sink

    def close(self) -> None:
        """Close the loop and check what it owes to everyone."""
        self.stepper.let_go()
        self.loop.close()
        for sink in self.sinks:
            sink.wait(timeout_s=1)
        assert self.stepper.violations == []
        assert self.loop.stats().active == 0


BenchMaker = Callable[..., Bench]


@pytest.fixture
def make_bench() -> Iterator[BenchMaker]:
    """Make benches; each is closed and checked after the test."""
    made: list[Bench] = []

    def make(
        *,
        max_waiting: int = 8,
        poll_period_s: float = 0.0,
        max_chunks_per_s: float = 0.0,
        tokens_per_chunk: int = 1,
        **stepper_options: Any,
    ) -> Bench:
        clock, observer = ManualClock(), RecordingObserver()
        stepper = ManualStepper(stepper_options.pop("limits", LIMITS), **stepper_options)
        loop = StepLoop(
            stepper,
            max_waiting=max_waiting,
            poll_period_s=poll_period_s,
            max_chunks_per_s=max_chunks_per_s,
            tokens_per_chunk=tokens_per_chunk,
            observer=observer,
            clock=clock,
        )
        made.append(Bench(stepper, loop, clock, observer))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: BenchMaker) -> Bench:
    """One bench with room for four sequences and eight waiting; polls before every step."""
    return make_bench()
