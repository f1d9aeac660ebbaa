"""Lengths of prompts and answers: fixed, or drawn from a stated distribution."""

from __future__ import annotations

import math
import random
import statistics
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from naiad_perf.workload.strict_yaml import NAME_PATTERN, StrictModel

__all__ = ["Length", "Lengths"]

_LONGEST = 1_000_000
_KINDS = (
    "give a whole number of tokens, or one of fixed, uniform, normal, lognormal and empirical, for example "
    "{lognormal: {median: 128, sigma: 0.8, max: 1024}}"
)
Tokens = Annotated[int, Field(ge=1, le=_LONGEST)]
_Seen = Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=100_000, strict=False)]


class Uniform(StrictModel):
    """Every length from `min` to `max` is as likely."""

    min: Tokens
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        _check_order(self.min, self.max)
        return self

    @property
    def label(self) -> str:
        """Short name."""
        return f"{self.min}to{self.max}"

    def at(self, share: float) -> float:
        """Return the value below which `share` of all draws lie."""
        return self.min - 0.5 + share * (self.max - self.min + 1)


class Normal(StrictModel):
    """A bell curve, cut off at `min` and `max`."""

    mean: Annotated[float, Field(gt=0, le=_LONGEST)]
    stdev: Annotated[float, Field(gt=0, le=_LONGEST)]
    min: Tokens = 1
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Normal:
        _check_order(self.min, self.max)
        return self

    @property
    def label(self) -> str:
        """Short name."""
        return f"n{self.mean:g}"

    def at(self, share: float) -> float:
        """Return the value below which `share` of all draws lie."""
        curve = statistics.NormalDist(self.mean, self.stdev)
        return _cut(curve, share, self.min - 0.5, self.max + 0.5)


class LogNormal(StrictModel):
    """Lengths whose logarithm is a bell curve around that of `median`, cut off at `min` and `max`.

    `sigma` is the standard deviation of the logarithm: 0.5 puts two thirds between 0.6 and 1.6 times the
    median. Real prompts and answers look like this.
    """

    median: Annotated[float, Field(gt=0, le=_LONGEST)]
    sigma: Annotated[float, Field(gt=0, le=5)]
    min: Tokens = 1
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> LogNormal:
        _check_order(self.min, self.max)
        return self

    @property
    def label(self) -> str:
        """Short name."""
        return f"ln{self.median:g}"

    def at(self, share: float) -> float:
        """Return the value below which `share` of all draws lie."""
        curve = statistics.NormalDist(0, self.sigma)
        low, high = (self.min - 0.5) / self.median, (self.max + 0.5) / self.median
        return self.median * math.exp(_cut(curve, share, math.log(low), math.log(high)))


class Length(StrictModel):
    """Exactly one of the kinds; `empirical` lists lengths that were seen, each as likely as any other."""

    fixed: Tokens | None = None
    uniform: Uniform | None = None
    normal: Normal | None = None
    lognormal: LogNormal | None = None
    empirical: _Seen | None = None

    @model_validator(mode="after")
    def _one(self) -> Length:
        if len(self.model_fields_set) != 1:
            raise ValueError(_KINDS)
        return self

    @property
    def label(self) -> str:
        """Short name for a point of a sweep."""
        if self.fixed is not None:
            return str(self.fixed)
        if self.empirical is not None:
            return f"e{round(statistics.fmean(self.empirical))}"
        curve = self.uniform or self.normal or self.lognormal
        return curve.label if curve else ""

    def draw(self, source: random.Random) -> int:
        """Return one length in tokens; the same number of values is taken from `source` each time."""
        share = source.random()
        if self.fixed is not None:
            return self.fixed
        if self.empirical is not None:
            return self.empirical[int(share * len(self.empirical))]
        curve = self.uniform or self.normal or self.lognormal
        if curve is None:
            raise ValueError("a length without a kind")
        return min(max(round(curve.at(share)), curve.min), curve.max)


def _number(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"fixed": value}
    if not isinstance(value, dict):
        raise ValueError(f"{_KINDS}; not {value!r}")
    return value


class Lengths(StrictModel):
    """Lengths of one point: `input` and `output` tokens, each a number or a distribution."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=40)] | None = None
    input: Annotated[Length, BeforeValidator(_number)]
    output: Annotated[Length, BeforeValidator(_number)]

    @property
    def label(self) -> str:
        """Its name, or one made of its lengths."""
        return self.name or f"i{self.input.label}-o{self.output.label}"


def _check_order(low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"min {low} is above max {high}")


def _cut(curve: statistics.NormalDist, share: float, low: float, high: float) -> float:
    """Return the quantile of a normal curve between two bounds (inverse transform sampling)."""
    below, above = curve.cdf(low), curve.cdf(high)
    place = below + share * (above - below)
    # Where nearly nothing of the curve lies between the bounds, the quantile is at the nearer one.
    return curve.inv_cdf(place) if 0 < place < 1 else (low if curve.mean <= low else high)
