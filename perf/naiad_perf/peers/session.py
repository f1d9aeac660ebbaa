"""One run of the comparison, from nothing started to everything stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from naiad_perf.burst_display import BurstDisplay
from naiad_perf.environment import describe_environment
from naiad_perf.peers.contest import IDLE_CORES, Contest
from naiad_perf.peers.contestants import LABELS, Contestants
from naiad_perf.peers.likeness import Likeness, likeness
from naiad_perf.peers.outcome import PeerResult, as_json, outcome, peak_memory_mb
from naiad_perf.peers.peer import Peer
from naiad_perf.peers.served import Served
from naiad_perf.peers.tuning import Trial
from naiad_perf.peers.weights import find_source
from naiad_perf.records import Run

__all__ = ["Options", "Outcome", "hold"]


@dataclass(frozen=True, slots=True)
class Options:
    """What to compare.

    Attributes:
        names: contestants.
        streams: loads.
        rounds: counted ones.
        input_tokens: of every prompt.
        output_tokens: of every answer.
        profile: that we serve with.
        llama_server: a llama.cpp program that takes part; None for none.
        tune: whether the peers' settings are tried out first.
        artifacts: folder of tools, models and servers.
        folder: existing and empty, for records and logs.
        command: as typed, for the records.
    """

    names: Sequence[str]
    streams: Sequence[int]
    rounds: int
    input_tokens: int
    output_tokens: int
    profile: str
    llama_server: Path | None
    tune: bool
    artifacts: Path
    folder: Path
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        results: of every contestant under every load.
        descriptions: version, weights and settings of each contestant.
        memory_mb: peak of each.
        alike: how often each went on with a text as ours did.
        idle_cores: processors that idle contestants together kept busy while another one worked, at most.
        trials: settings that were tried, by contestant.
        environment: machine and versions.
    """

    results: Sequence[PeerResult]
    descriptions: dict[str, dict[str, str]]
    memory_mb: dict[str, float]
    alike: dict[str, Likeness]
    idle_cores: float
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return everything in JSON's types."""
        return {
            "results": as_json(self.results, self.memory_mb),
            "contestants": {
                name: {"label": LABELS[name], **words} for name, words in self.descriptions.items()
            },
            "answers_alike": {name: asdict(found) for name, found in self.alike.items()},
            "idle_cores": self.idle_cores,
            "trials": {name: [asdict(trial) for trial in tried] for name, tried in self.trials.items()},
            "environment": self.environment,
        }


def hold(options: Options, display: BurstDisplay) -> Outcome:
    """Try settings out, start all contestants, run all rounds, stop everything.

    The outcome is written to ``peers.json`` in the folder, too.

    Raises:
        PerfError: a contestant cannot be installed, started or measured; records of finished bursts stay.
    """
    source = find_source(options.artifacts)
    trials: dict[str, list[Trial]] = {}

    def note(name: str, trial: Trial) -> None:
        trials.setdefault(name, []).append(trial)
        display.trial(LABELS[name], trial)

    contestants = Contestants(
        source=source,
        artifacts=options.artifacts,
        folder=options.folder,
        profile=options.profile,
        streams=options.streams,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
        llama_server=options.llama_server,
        tune=options.tune,
        tell=display.tell,
        note=note,
    )
    environment = describe_environment()
    with ExitStack() as stack:
        peers, extra = contestants.make(options.names)
        for peer in peers:
            display.tell(f"starting {peer.label}")
            stack.enter_context(peer)
            peer.start(display.tell)
        display.tell("comparing answers")
        alike = likeness(peers, Served.name)
        contest = Contest(
            peers=peers,
            streams=options.streams,
            extra=extra,
            rounds=options.rounds,
            input_tokens=options.input_tokens,
            output_tokens=options.output_tokens,
            model=source.model,
            folder=options.folder,
            environment=environment,
            command=options.command,
        )
        display.begin(sum(1 for _ in contest.turns()))
        runs = contest.run(display.before, display.after)
        found = Outcome(
            results=outcome(runs, Served.name),
            descriptions=_descriptions(peers),
            memory_mb=peak_memory_mb(runs),
            alike=alike,
            idle_cores=_idle_cores(runs),
            trials=trials,
            environment=environment,
        )
        display.tell("stopping")
    (options.folder / "peers.json").write_text(json.dumps(found.as_json(), indent=1) + "\n", encoding="utf-8")
    return found


def _descriptions(peers: Sequence[Peer]) -> dict[str, dict[str, str]]:
    return {peer.name: peer.description for peer in peers}


def _idle_cores(runs: Sequence[Run]) -> float:
    return max(float(run.facts.environment[IDLE_CORES]) for run in runs)
