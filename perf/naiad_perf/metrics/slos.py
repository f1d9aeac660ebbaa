"""What a service promises: limits that a good answer keeps, and how many requests may fail."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from naiad_perf.errors import ScenarioError

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


class _SlosFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    ttft_ms: float | None = Field(default=None, gt=0)
    tpot_ms: float | None = Field(default=None, gt=0)
    latency_ms: float | None = Field(default=None, gt=0)


class _PromiseFile(BaseModel):
    """The part of a scenario that is a promise; the rest is not read here."""

    slos: _SlosFile = _SlosFile()
    error_budget: float | None = Field(default=None, ge=0, le=1)


def read_promise(folder: Path) -> Promise:
    """Read `slos` and `error_budget` of the scenario kept beside a sweep's records; none of both is no error.

    Raises:
        ScenarioError: the file is there, but these keys of it are wrong; the message names them.
    """
    path = folder / "scenario.yaml"
    if not path.exists():
        return Promise()
    try:
        content = _PromiseFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScenarioError(f"{path} is not readable YAML: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors()
        )
        raise ScenarioError(f"{path}: {wrong}") from error
    return Promise(Slos(**content.slos.model_dump()), content.error_budget)
