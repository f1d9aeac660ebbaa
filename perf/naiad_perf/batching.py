"""In-flight batching, shown: many streams against one, and the served engine against the bare one.

Server and bare engine take turns within one run, on the same prompts, so a change of the machine's speed
meets both. Every answer has exactly the tokens asked for.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from naiad_perf.load import Prompt
from naiad_perf.peers.bare_loop import BareLoop
from naiad_perf.peers.burst_figures import median_ttft_s, tokens_per_s
from naiad_perf.peers.peer import Peer
from naiad_perf.peers.served import Served

__all__ = ["BatchingResult", "Sample", "bare_engine", "measure", "served_engine", "summary", "table"]

Runner = Callable[[Sequence[str], int], "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One burst: output tokens a second over all streams, and the median TTFT in seconds."""

    tokens_per_s: float
    ttft_s: float


@dataclass(slots=True)
class BatchingResult:
    """Samples of every repeat, in order."""

    one: list[Sample] = field(default_factory=list)
    many: list[Sample] = field(default_factory=list)
    bare_one: list[Sample] = field(default_factory=list)
    bare_many: list[Sample] = field(default_factory=list)


@contextmanager
def served_engine(profile: str = "cpu", artifacts: Path = Path(".artifacts")) -> Iterator[Runner]:
    """Start a server of our own and yield what sends bursts to `tensorrt_llm_bls`.

    Raises:
        PerfError: the server did not become ready.
    """
    with (
        TemporaryDirectory(prefix="naiad-bench-") as folder,
        Served(profile, artifacts, Path(folder) / "server.log") as peer,
    ):
        yield from _runner(peer)


@contextmanager
def bare_engine() -> Iterator[Runner]:
    """Start the same engine without Triton, in a process of its own, and yield what sends bursts to it.

    Raises:
        PerfError: it did not start.
    """
    with TemporaryDirectory(prefix="naiad-bench-") as folder, BareLoop(Path(folder) / "bare.log") as peer:
        yield from _runner(peer)


def _runner(peer: Peer) -> Iterator[Runner]:
    peer.start(lambda _line: None)

    def run(prompts: Sequence[str], tokens: int) -> Sample:
        records = peer.burst([Prompt(text, (), tokens) for text in prompts], len(prompts))
        return Sample(tokens_per_s(records), median_ttft_s(records))

    yield run


def measure(
    served: Runner, bare: Runner, *, streams: int, tokens: int, repeats: int, report: Callable[[str], None]
) -> BatchingResult:
    """Run every burst `repeats` times, after one uncounted round; prompts differ between rounds.

    Served and bare take turns in going first, so that a machine that slows down favours neither.
    """
    result = BatchingResult()
    for number in range(-1, repeats):
        report(f"round {number + 1} of {repeats}" if number >= 0 else "warm-up round")
        prompts = [f"Story {number} {index}: once upon a time there was" for index in range(streams)]
        alone = [f"Alone {number}: once upon a time there was"]
        bursts = [
            (result.bare_many, bare, prompts),
            (result.many, served, prompts),
            (result.one, served, alone),
            (result.bare_one, bare, alone),
        ]
        for kept, run, texts in bursts[:: 1 if number % 2 else -1]:
            sample = run(texts, tokens)
            if number >= 0:
                kept.append(sample)
    return result


def summary(result: BatchingResult, streams: int) -> dict[str, float]:
    """Return medians over the rounds: tokens/s, TTFT, and ratios taken round by round.

    Each ratio has its lowest and highest round beside it, as `_min` and `_max`.
    """

    def speed(samples: list[Sample]) -> float:
        return statistics.median(sample.tokens_per_s for sample in samples)

    def ratios(name: str, above: list[Sample], below: list[Sample]) -> dict[str, float]:
        pairs = zip(above, below, strict=True)
        values = [one.tokens_per_s / other.tokens_per_s for one, other in pairs]
        return {name: statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)}

    return {
        "streams": streams,
        "served_1_tokens_per_s": speed(result.one),
        "served_n_tokens_per_s": speed(result.many),
        "bare_1_tokens_per_s": speed(result.bare_one),
        "bare_n_tokens_per_s": speed(result.bare_many),
        "served_1_ttft_ms": 1000 * statistics.median(sample.ttft_s for sample in result.one),
        "bare_1_ttft_ms": 1000 * statistics.median(sample.ttft_s for sample in result.bare_one),
        **ratios("n_over_1", result.many, result.one),
        **ratios("served_over_bare_n", result.many, result.bare_many),
        **ratios("served_over_bare_1", result.one, result.bare_one),
    }


def table(figures: dict[str, float], repeats: int) -> str:
    """Write a summary as a few lines of text."""
    streams = figures["streams"]

    def line(label: str, kind: str) -> str:
        one, many = figures[f"{kind}_1_tokens_per_s"], figures[f"{kind}_n_tokens_per_s"]
        return f"{label:<14}{one:>12.1f}{many:>14.1f}{figures[f'{kind}_1_ttft_ms']:>16.0f} ms"

    def ratio(name: str) -> str:
        return f"{figures[name]:.2f} ({figures[f'{name}_min']:.2f} to {figures[f'{name}_max']:.2f})"

    return "\n".join(
        (
            f"{'tokens/s':<14}{'1 stream':>12}{f'{streams:g} streams':>14}{'TTFT, 1 stream':>19}",
            line("served", "served"),
            line("bare engine", "bare"),
            f"{streams:g} streams over 1 stream: {ratio('n_over_1')} times",
            f"served over bare engine: {ratio('served_over_bare_n')} at {streams:g} streams, "
            f"{ratio('served_over_bare_1')} at 1",
            f"(medians, lowest to highest of {repeats} rounds)",
        )
    )
