"""A scenario: what is measured, under which load, how often; read from YAML for `naiad bench sweep`.

Everything that decides what is sent to a server is in it, so that a figure can be made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from naiad_perf.errors import ScenarioError
from naiad_perf.workload.lengths import Lengths
from naiad_perf.workload.strict_yaml import NAME_PATTERN, StrictModel, read_yaml, validated
from naiad_perf.workload.traces import TraceFormat

__all__ = [
    "SCENARIOS_FOLDER",
    "ExistingServer",
    "LoadShape",
    "Scenario",
    "Slos",
    "Subject",
    "Trace",
    "find_scenario",
    "read_scenario",
    "supplied_scenarios",
]

SCENARIOS_FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
"""The scenarios that come with Naiad."""


def _listed(value: Any) -> Any:
    """Let one value stand for a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=40)]
Address = Annotated[str, Field(pattern=r"^[^/\s]+:\d+$", description="host:port")]
_Concurrencies = Annotated[
    tuple[Annotated[int, Field(ge=1, le=4096)], ...],
    BeforeValidator(_listed),
    Field(min_length=1, strict=False),
]
_Positives = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)], ...],
    BeforeValidator(_listed),
    Field(min_length=1, strict=False),
]
_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ExistingServer(StrictModel):
    """A server that somebody else runs; the sweep neither starts nor stops it.

    Attributes:
        grpc: ``host:port``.
        http: ``host:port``.
        metrics: ``host:port`` of its Prometheus page, for KV cache use; left out, that is not known.
    """

    grpc: Address
    http: Address
    metrics: Address | None = None


class Subject(StrictModel):
    """What is compared with the other subjects.

    Attributes:
        name: how figures call it.
        model: Triton model to ask.
        profile: deployment profile to serve; one server is started a profile, for all subjects that name it.
        server: instead of a profile.
        driver: load generator, instead of the scenario's.
        hourly_price_usd: what an hour of the serving machine costs, instead of the profile's price.
    """

    name: Name
    model: Annotated[str, Field(min_length=1)] = "tensorrt_llm_bls"
    profile: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] | None = None
    server: ExistingServer | None = None
    driver: str | None = None
    hourly_price_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one_server(self) -> Subject:
        if (self.profile is None) == (self.server is None):
            raise ValueError("give exactly one of profile (a server is started) and server (one that runs)")
        return self


class LoadShape(StrictModel):
    """Exactly one of the three; lists are swept.

    Attributes:
        concurrency: closed loop: so many streams, each sends its next request when its last one has ended.
        request_rate: open loop: mean requests a second, as a Poisson process, however the server does.
        replay: open loop at the arrival times of `trace`, stretched by its `stretch_arrivals_by`.
    """

    concurrency: _Concurrencies | None = None
    request_rate: _Positives | None = None
    replay: Annotated[bool, Field(description="true")] = False

    @model_validator(mode="after")
    def _one_shape(self) -> LoadShape:
        given = [self.concurrency is not None, self.request_rate is not None, self.replay]
        if sum(given) != 1:
            raise ValueError("give exactly one of concurrency: [1, 8], request_rate: [0.5, 2], replay: true")
        return self


class Trace(StrictModel):
    """Lengths, and for a replay arrivals, of a real service.

    Attributes:
        format: mooncake or azure, see `naiad_perf.workload.traces`.
        file: plain or gzipped; relative paths start at the scenario. `--trace FILE` takes its place.
        divide_lengths_by: prompts and answers are made so many times shorter. At most 512 for mooncake, so
            that no shared block vanishes.
        stretch_arrivals_by: gaps between arrivals become so many times longer; a list is swept.
        offset: rows left out at the start.
        limit: rows taken; None: all.
    """

    format: TraceFormat
    file: Path | None = None
    divide_lengths_by: Annotated[float, Field(ge=1, le=512)] = 1.0
    stretch_arrivals_by: _Positives = (1.0,)
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1)] | None = None

    @field_validator("format", mode="before")
    @classmethod
    def _format(cls, value: Any) -> Any:
        known = {kind.value: kind for kind in TraceFormat}
        if value not in known and value not in known.values():
            raise ValueError(f"must be one of {', '.join(known)}, not {value!r}")
        return known.get(value, value)

    @field_validator("file", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value else value


class Slos(StrictModel):
    """Limits a request must keep to count as good; see goodput."""

    ttft_ms: _Milliseconds | None = None
    tpot_ms: _Milliseconds | None = None
    latency_ms: _Milliseconds | None = None


class Scenario(StrictModel):
    """One sweep.

    Attributes:
        name: names the folder of its results.
        summary: one line for the list of scenarios.
        driver: load generator: perf_analyzer, or another one that `naiad bench sweep --help` names.
        subjects: what is compared; each point is measured with all of them in turn.
        load: concurrencies, rates, or a replay.
        lengths: prompt and answer lengths, one or several to sweep. Exactly one of `lengths` and `trace`.
        trace: lengths, and for a replay arrivals, from a real service.
        requests: measured requests a run.
        requests_per_stream: instead, for `concurrency`: measured requests of a run, for each stream.
        warm_up: requests sent before these; they are in no figure. Left out: one a stream, or 4.
        repeats: how often the whole is measured.
        seed: of lengths, words and arrivals.
        timeout_s: a request that takes longer is an error.
        cancel_after_s: clients hang up so long after sending; left out, never.
        slos: what counts as a good answer.
        error_budget: share of a run's measured requests that may fail; more, and the exit status is 3.
    """

    name: Name
    summary: str = ""
    driver: str = "perf_analyzer"
    subjects: Annotated[tuple[Subject, ...], Field(min_length=1, strict=False)]
    load: LoadShape
    lengths: Annotated[tuple[Lengths, ...], BeforeValidator(_listed), Field(strict=False)] = ()
    trace: Trace | None = None
    requests: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    requests_per_stream: Annotated[int, Field(ge=1, le=100_000)] | None = None
    warm_up: Annotated[int, Field(ge=0, le=100_000)] | None = None
    repeats: Annotated[int, Field(ge=1, le=1000)] = 3
    seed: Annotated[int, Field(ge=0)] = 0
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    cancel_after_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    slos: Slos = Slos()
    error_budget: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        _unique("subjects", [subject.name for subject in self.subjects])
        _unique("lengths", [lengths.label for lengths in self.lengths])
        if bool(self.lengths) == (self.trace is not None):
            raise ValueError("give exactly one of lengths and trace")
        if self.load.replay and self.trace is None:
            raise ValueError("load.replay needs a trace")
        if not self.load.replay and self.trace is not None and len(self.trace.stretch_arrivals_by) > 1:
            raise ValueError("trace.stretch_arrivals_by is swept only with load.replay")
        if self.requests is not None and self.requests_per_stream is not None:
            raise ValueError("give one of requests and requests_per_stream")
        if self.requests_per_stream is not None and self.load.concurrency is None:
            raise ValueError("requests_per_stream needs load.concurrency; give requests instead")
        if self.trace is None and self.requests is None and self.requests_per_stream is None:
            raise ValueError("requests, or with load.concurrency requests_per_stream, is missing")
        return self


def _unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} is there twice; give each a name of its own")


def read_scenario(path: Path, trace: Path | None = None, *, need_trace: bool = True) -> Scenario:
    """Read a scenario; its trace's path becomes absolute.

    Args:
        path: YAML file.
        trace: takes the place of the trace's `file`.
        need_trace: False: a replay that names no file is fine, for it is only looked at.

    Raises:
        ScenarioError: something in it is wrong; the message has a line for each fault.
    """
    scenario = validated(Scenario, read_yaml(path), str(path))
    if scenario.trace is None:
        if trace is not None:
            raise ScenarioError(f"{path} uses no trace: leave --trace out")
        return scenario
    given = trace if trace is not None else scenario.trace.file
    if given is None:
        if not need_trace:
            return scenario
        source = scenario.trace.format.source
        raise ScenarioError(f"{path} replays a trace: name its file with --trace ({source})")
    file = given.absolute() if trace is not None else (path.parent / given).absolute()
    return scenario.model_copy(update={"trace": scenario.trace.model_copy(update={"file": file})})


def supplied_scenarios(folder: Path = SCENARIOS_FOLDER) -> tuple[Path, ...]:
    """Return the scenarios that come with Naiad, by name."""
    return tuple(sorted(folder.glob("*.yaml")))


def find_scenario(name: str, folder: Path = SCENARIOS_FOLDER) -> Path:
    """Return the file that `name` means: a path, or the name of a supplied scenario.

    Raises:
        ScenarioError: neither; the message lists the supplied ones.
    """
    for path in (Path(name), folder / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(path.stem for path in supplied_scenarios(folder))
    raise ScenarioError(f"there is no scenario {name}: give a YAML file, or one of {known}")
