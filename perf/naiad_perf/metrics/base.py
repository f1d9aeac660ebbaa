"""What a metric is: a name, a unit, which way is better, a formula in its docstring, one short method."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from naiad_perf.metrics.slos import Slos
from naiad_perf.records import RequestRecord, Run

__all__ = [
    "CORES",
    "COUNT",
    "MIB",
    "MILLISECONDS",
    "PER_SECOND",
    "SECONDS",
    "SHARE",
    "TOKENS",
    "TOKENS_PER_S",
    "USD",
    "Better",
    "Distribution",
    "Metric",
    "RequestMetric",
    "RunMetric",
    "Unit",
]


class Better(Enum):
    """Which way a metric is good; for some, neither is."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Unit:
    """How a value is shown.

    Attributes:
        symbol: written behind the value and on axes.
        held_in_one: how many of the units held inside make one shown, for example 1,000,000 ns a ms.
    """

    symbol: str
    held_in_one: float = 1

    def shown(self, value: float) -> float:
        """Convert from the unit held inside."""
        return value / self.held_in_one


MILLISECONDS = Unit("ms", 1_000_000)
TOKENS = Unit("tokens")
TOKENS_PER_S = Unit("tokens/s")
PER_SECOND = Unit("1/s")
SECONDS = Unit("s", 1_000_000_000)
SHARE = Unit("%", 0.01)
COUNT = Unit("")
CORES = Unit("cores")
USD = Unit("USD")
MIB = Unit("MiB", 2**20)


class Metric(ABC):
    """Base of all metrics. The docstring of each is its definition, printed as such in reports."""

    name: ClassVar[str]
    """Stable; in CSV columns and on the command line. Times end in their unit as shown."""
    header: ClassVar[str]
    """For people."""
    unit: ClassVar[Unit]
    better: ClassVar[Better]

    @property
    def definition(self) -> str:
        """What it is and how it is computed."""
        return inspect.cleandoc(type(self).__doc__ or "")


class Distribution(Metric):
    """A metric with many values in a run, shown as mean and percentiles."""

    @abstractmethod
    def values(self, record: RequestRecord) -> Sequence[float]:
        """Return the values of one successful request, in the unit held inside; none where undefined."""


class RequestMetric(Distribution):
    """A metric with at most one value for a request."""

    @abstractmethod
    def of(self, record: RequestRecord) -> float | None:
        """Return the value of one successful request, in the unit held inside; None where undefined."""

    def values(self, record: RequestRecord) -> Sequence[float]:
        """Return the one value, or none where undefined."""
        value = self.of(record)
        return () if value is None else (value,)


class RunMetric(Metric):
    """A metric with one value for a run."""

    @abstractmethod
    def of(self, run: Run, slos: Slos) -> float | None:
        """Return the value of a run, in the unit held inside; None where undefined."""
