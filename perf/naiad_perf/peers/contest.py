"""The contest: in every round all contestants take turns on the same new prompts, under each load.

All are loaded all the time and idle while another one works, so none starts cold. Every other round runs
backwards, so that a machine that changes its speed favours nobody.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from naiad_perf.errors import PerfError
from naiad_perf.peers.peer import Peer
from naiad_perf.records import RequestRecord, Run, RunFacts, ServerFigures, write_run
from naiad_perf.workload.load import Prompt
from naiad_perf.workload.making import distinct_prompts

__all__ = ["IDLE_CORES", "Contest", "Turn", "check_same_work", "requests_at"]

IDLE_CORES = "processors kept busy by idle contestants"
"""Name in a record's environment."""
_AT_LEAST = 4
"""Requests of a burst, so that a load of few streams has more than one TTFT a round."""
_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """One burst: a contestant under a load in a round; round -1 only warms up."""

    peer: Peer
    streams: int
    round: int

    @property
    def label(self) -> str:
        """Who works."""
        return self.peer.label


def requests_at(streams: int) -> int:
    """Return how many requests a burst of so many streams has: a whole number for each, at least four."""
    return streams * -(-_AT_LEAST // streams)


@dataclass(frozen=True, slots=True)
class Contest:
    """What is run.

    Attributes:
        peers: contestants, all started.
        streams: loads.
        extra: further loads of single contestants, by their name.
        rounds: counted rounds; one uncounted, short one comes before.
        input_tokens: of every prompt.
        output_tokens: of every answer, exactly.
        model: name of the model, for the records.
        folder: for the records; they bear the names that `naiad bench report` expects.
        environment: for the records.
        command: for the records.
    """

    peers: Sequence[Peer]
    streams: Sequence[int]
    extra: Mapping[str, Sequence[int]]
    rounds: int
    input_tokens: int
    output_tokens: int
    model: str
    folder: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]

    def turns(self) -> Iterator[Turn]:
        """Yield all turns in order, warm-up first."""
        for number in range(-1, self.rounds):
            step = -1 if number % 2 else 1
            loads = sorted({*self.streams, *(load for loads in self.extra.values() for load in loads)})
            for load in loads[::step]:
                for peer in self.peers[::step]:
                    if load in self.streams or load in self.extra.get(peer.name, ()):
                        yield Turn(peer, load, number)

    def run(self, before: Callable[[Turn], None], after: Callable[[Turn, Run], None]) -> list[Run]:
        """Run everything; every counted burst is on disk the moment it is over.

        Args:
            before: called before each burst.
            after: called after each.

        Raises:
            PerfError: a contestant failed, or did other work than asked for; all bursts before it are kept.
        """
        runs: list[Run] = []
        counting = False
        for turn in self.turns():
            if turn.round >= 0 and not counting:
                counting = True
                for peer in self.peers:  # what loading and warming up took does not count
                    peer.processes.reset_peak_memory()
            before(turn)
            run = self._burst(turn, position=len(runs))
            if counting:
                name = f"{run.facts.point}__{turn.peer.name}__{turn.round:03d}"
                write_run(run, self.folder / f"{name}.parquet")
                runs.append(run)
            after(turn, run)
        return runs

    def _burst(self, turn: Turn, position: int) -> Run:
        tokens = self.output_tokens if turn.round >= 0 else min(_WARM_UP_TOKENS, self.output_tokens)
        # The same prompts for every contestant of a round, and new ones in every round and load.
        prompts = distinct_prompts(
            requests_at(turn.streams), self.input_tokens, tokens, f"round {turn.round} of {turn.streams}"
        )
        idle = [peer for peer in self.peers if peer is not turn.peer]
        started_utc = datetime.now(timezone.utc).isoformat(timespec="seconds")
        idle_s = sum(peer.processes.cpu_s() for peer in idle)
        busy_s = turn.peer.processes.cpu_s()
        client_s, started_s = _own_cpu_s(), time.monotonic()
        records = turn.peer.burst(prompts, turn.streams)
        wall_s, client_s = time.monotonic() - started_s, _own_cpu_s() - client_s
        busy_s = turn.peer.processes.cpu_s() - busy_s
        idle_s = sum(peer.processes.cpu_s() for peer in idle) - idle_s
        check_same_work(turn.peer.label, records, prompts)
        described = turn.peer.description
        facts = RunFacts(
            subject=turn.peer.name,
            point=f"c{turn.streams}-i{self.input_tokens}-o{tokens}",
            repeat=max(turn.round, 0),
            driver="peers",
            driver_version=described["version"],
            model=self.model,
            profile=None,
            concurrency=turn.streams,
            request_rate=None,
            input_tokens=self.input_tokens,
            output_tokens=tokens,
            started_utc=started_utc,
            position=position,
            command=self.command,
            wall_s=wall_s,
            client_cpu_s=client_s,
            cores=os.cpu_count() or 1,
            server=ServerFigures(
                requests=len(records), cpu_s=busy_s, memory_bytes=turn.peer.processes.peak_memory_bytes()
            ),
            environment={
                **self.environment,
                **{f"{turn.peer.name} {what}": text for what, text in described.items()},
                IDLE_CORES: f"{idle_s / wall_s:.4f}",
            },
        )
        return Run(facts, records)


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def check_same_work(label: str, records: Sequence[RequestRecord], prompts: Sequence[Prompt]) -> None:
    """Refuse a burst that is not the work that was asked for.

    Raises:
        PerfError: a request is missing, its prompt had another length as the contestant counts it, or its
            answer did.
    """
    if len(records) != len(prompts):
        raise PerfError(f"{label} answered {len(records)} of {len(prompts)} requests")
    for record, prompt in zip(records, prompts, strict=True):
        if record.output_tokens != prompt.output_tokens:
            raise PerfError(
                f"{label} made {record.output_tokens} tokens where {prompt.output_tokens} were asked for"
            )
        if record.input_tokens is not None and record.input_tokens != len(prompt.ids):
            raise PerfError(
                f"{label} counts {record.input_tokens} tokens in a prompt that has {len(prompt.ids)}: "
                "does this model add a token to every prompt?"
            )
