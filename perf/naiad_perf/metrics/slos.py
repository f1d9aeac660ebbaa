"""What a service promises: limits that a good answer keeps, and how many requests may fail."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from naiad_perf.workload.strict_yaml import StrictModel, read_yaml, validated

__all__ = ["Promise", "Slos", "read_promise"]


@dataclass(frozen=True, slots=True)
class Slos:
    """Limits for each request; None where nothing is promised. A value equal to its limit keeps it.

    Attributes:
        ttft_ms: time to the first token.
        tpot_ms: time for each output token after the first response.
        latency_ms: time to the final message.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None

    @property
    def stated(self) -> dict[str, float]:
        """Limits there are, by metric name."""
        limits = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Promise:
    """SLOs, and the share of requests that may fail (0.01 is 1 %); None where nothing is stated."""

    slos: Slos = Slos()
    error_budget: float | None = None


_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _SlosFile(StrictModel):
    ttft_ms: _Milliseconds | None = None
    tpot_ms: _Milliseconds | None = None
    latency_ms: _Milliseconds | None = None


class _PromiseFile(BaseModel):
    """The part of a scenario that is a promise, the rest is not read; without a budget, nothing may fail."""

    slos: _SlosFile = _SlosFile()
    error_budget: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.0


def read_promise(folder: Path) -> Promise:
    """Read `slos` and `error_budget` of the scenario kept beside a sweep's runs; no file promises nothing.

    Raises:
        ScenarioError: the file is there, but these keys of it are wrong; the message names them.
    """
    path = folder / "scenario.yaml"
    if not path.exists():
        return Promise()
    content = validated(_PromiseFile, read_yaml(path), str(path))
    return Promise(Slos(**content.slos.model_dump()), content.error_budget)
