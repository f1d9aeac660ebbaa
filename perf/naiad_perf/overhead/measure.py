"""The same prompts through more and more of the path, in turn: bare engine, engine model, text model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from naiad_perf.drivers.base import Driver
from naiad_perf.overhead.processes import processor_time_s
from naiad_perf.overhead.stations import Stations, measure_stations
from naiad_perf.peers.bare_loop import BareLoop
from naiad_perf.records import RequestRecord, Run, RunFacts, ServerFigures, write_run
from naiad_perf.servers.own_server import OwnServer
from naiad_perf.workload.load import ClosedLoop, LoadTask, Prompt
from naiad_perf.workload.making import distinct_prompts

__all__ = ["BARE", "ENGINE_MODEL", "TEXT_MODEL", "Measured", "Overhead", "Turn"]

BARE, ENGINE_MODEL, TEXT_MODEL = "bare", "tensorrt_llm", "tensorrt_llm_bls"
"""The stages, each with everything of the one before it."""
_LIMIT_S = 600.0
_WARM_UP_TOKENS = 8
_AT_LEAST = 8
"""Requests of a burst, so that a load of few streams has some TTFTs and some processor time to show."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One burst: a stage under a load in a round; round -1 only warms up."""

    stage: str
    streams: int
    round: int

    @property
    def label(self) -> str:
        """Who works."""
        return self.stage


@dataclass(slots=True)
class Measured:
    """Everything that was found.

    Attributes:
        runs: counted bursts.
        cpu_s: processor time of each part of the server and of the client over all counted bursts, by stage
            and streams.
        stations: ways to the first token through the text model, by streams.
    """

    runs: list[Run] = field(default_factory=list)
    cpu_s: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    stations: dict[int, list[Stations]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overhead:
    """What is run.

    Attributes:
        server: started and healthy.
        bare: the engine without Triton, started; None for an engine that has no such loop.
        driver: load generator for what goes through Triton, prepared.
        streams: loads.
        rounds: counted rounds; a short one comes before.
        requests_per_stream: of each burst, which has eight at least.
        input_tokens: of every prompt.
        output_tokens: of every answer, exactly.
        profile: that is served.
        folder: existing, for records and the load generator's files.
        environment: for the records.
        command: for the records.
    """

    server: OwnServer
    bare: BareLoop | None
    driver: Driver
    streams: Sequence[int]
    rounds: int
    requests_per_stream: int
    input_tokens: int
    output_tokens: int
    profile: str
    folder: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        """From the least of the path to all of it."""
        return (ENGINE_MODEL, TEXT_MODEL) if self.bare is None else (BARE, ENGINE_MODEL, TEXT_MODEL)

    def turns(self) -> list[Turn]:
        """Return all turns in order; every other round runs backwards."""
        turns = []
        for number in range(-1, self.rounds):
            step = -1 if number % 2 else 1
            for streams in list(self.streams)[::step]:
                turns += [Turn(stage, streams, number) for stage in self.stages[::step]]
        return turns

    def run(self, before: Callable[[Turn], None], after: Callable[[Turn, Run], None]) -> Measured:
        """Run everything; every counted burst is on disk the moment it is over.

        Raises:
            PerfError: a stage failed; all bursts before it are kept.
        """
        found = Measured()
        for turn in self.turns():
            before(turn)
            run, used = self._burst(turn, len(found.runs))
            if turn.round >= 0:
                write_run(run, self.folder / f"{run.facts.point}__{turn.stage}__{turn.round:03d}.parquet")
                found.runs.append(run)
                kept = found.cpu_s.setdefault((turn.stage, turn.streams), {})
                for part, seconds in used.items():
                    kept[part] = kept.get(part, 0.0) + seconds
                if turn.stage == TEXT_MODEL:
                    found.stations.setdefault(turn.streams, []).extend(self._stations(turn))
            after(turn, run)
        return found

    def _prompts(self, turn: Turn, what: str) -> tuple[Prompt, ...]:
        """The same for every stage of a round, new ones in every round and load."""
        tokens = self.output_tokens if turn.round >= 0 else min(_WARM_UP_TOKENS, self.output_tokens)
        count = turn.streams * max(self.requests_per_stream, -(-_AT_LEAST // turn.streams))
        return distinct_prompts(count, self.input_tokens, tokens, f"{what} {turn.round} of {turn.streams}")

    def _stations(self, turn: Turn) -> list[Stations]:
        prompts = self._prompts(turn, "stations")
        return measure_stations(self.server.grpc_url, TEXT_MODEL, prompts, turn.streams)

    def _burst(self, turn: Turn, position: int) -> tuple[Run, dict[str, float]]:
        prompts = self._prompts(turn, turn.stage if turn.round < 0 else "round")
        started_utc = datetime.now(timezone.utc).isoformat(timespec="seconds")
        if turn.stage == BARE and self.bare is not None:
            used = {"engine": -self.bare.processes.cpu_s()}
            started_s = time.monotonic()
            records = self.bare.burst(prompts, turn.streams)
            wall_s = time.monotonic() - started_s
            used["engine"] += self.bare.processes.cpu_s()
            client_s, version = None, self.bare.description["version"]
        else:
            earlier = processor_time_s(self.server.pid)
            records, wall_s, client_s = self._drive(turn, prompts)
            later = processor_time_s(self.server.pid)
            used = {part: seconds - earlier.get(part, 0.0) for part, seconds in later.items()}
            version = self.driver.version
            if client_s is not None:
                used["client"] = client_s
        facts = RunFacts(
            subject=turn.stage,
            point=f"c{turn.streams}-i{self.input_tokens}-o{prompts[0].output_tokens}",
            repeat=max(turn.round, 0),
            driver="bare" if turn.stage == BARE else self.driver.name,
            driver_version=version,
            model=turn.stage,
            profile=self.profile,
            concurrency=turn.streams,
            request_rate=None,
            input_tokens=self.input_tokens,
            output_tokens=prompts[0].output_tokens,
            started_utc=started_utc,
            position=position,
            command=self.command,
            wall_s=wall_s,
            client_cpu_s=client_s,
            cores=os.cpu_count() or 1,
            server=ServerFigures(
                requests=len(records),
                cpu_s=sum(seconds for part, seconds in used.items() if part != "client"),
            ),
            environment=dict(self.environment),
        )
        return Run(facts, records), used

    def _drive(
        self, turn: Turn, prompts: tuple[Prompt, ...]
    ) -> tuple[tuple[RequestRecord, ...], float, float | None]:
        folder = self.folder / "raw" / f"{turn.stage}-{turn.streams}-{turn.round + 1}"
        folder.mkdir(parents=True)
        task = LoadTask(
            grpc_url=self.server.grpc_url,
            http_url=self.server.http_url,
            model=turn.stage,
            takes_ids=turn.stage == ENGINE_MODEL,
            prompts=prompts,
            warm_up=0,
            load=ClosedLoop(turn.streams),
            timeout_s=_LIMIT_S,
            folder=folder,
        )
        driven = self.driver.run(task)
        return driven.requests, driven.wall_s, driven.client_cpu_s
