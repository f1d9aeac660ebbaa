"""Confidence intervals for a ratio, from few repeats.

Whole repeats are resampled (10,000 times, always the same resamples) for the standard error of the mean log
ratio. It is widened for the few values it comes from, by `sqrt(n / (n - 1))` and by Student's t in place of
the normal distribution (Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician
69, 2015, section 4). For paired repeats that is Student's interval of log ratios, but for resampling noise.

How often 95 % intervals of five paired repeats held the true ratio, in 1,000 to 1,500 simulated comparisons
each (standard error 0.006), and their median length against that of the one used here, with normal noise:

    noise of the log ratio       percentile   BCa   studentized   here
    normal                             0.84  0.84          0.96   0.96
    heavy tails (t, 3 degrees)         0.84  0.83          0.95   0.96
    two-sided exponential              0.80  0.78          0.94   0.96
    one-sided exponential              0.80  0.81          0.93   0.88
    p99 of 100 latencies each          0.82  0.82          0.95   0.96
    length, median                     0.62  0.64          1.31   1

Percentile and BCa bounds cannot pass the lowest and the highest of the repeats, so that with `n` of them they
cover at most `1 - 2 / 2^n`. The studentized bootstrap covers, but one interval in ten is longer than twice
the median, and with three repeats it has no end. The one used here covers 0.94 to 0.98 with three repeats and
with ten too, and 0.88 to 0.90 where noise is one-sided. Resampling requests within resampled repeats was
tried as well: it counts the noise of requests twice, since repeats already differ by it, and covered anything
from 0.83 to 0.98, depending on how much of the noise is between runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import atan, exp, lgamma, pi, sqrt

import numpy as np
import numpy.typing as npt

__all__ = ["MINIMUM_REPEATS", "RatioInterval", "paired_ratio", "unpaired_ratio"]

MINIMUM_REPEATS = 3
_RESAMPLES = 10_000
_SEED = 20_260_105

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """A ratio and the interval around it.

    Attributes:
        ratio: geometric mean over the repeats.
        low: lower bound.
        high: upper bound.
    """

    ratio: float
    low: float
    high: float


def paired_ratio(a: Sequence[float], b: Sequence[float], confidence: float) -> RatioInterval:
    """Return b / a with its interval, from values of which each pair met the same state of the machine.

    Args:
        a: positive, at least `MINIMUM_REPEATS`.
        b: as many.
        confidence: for example 0.95.

    Raises:
        ValueError: too few values, not as many of both, or one that is not positive.
    """
    logs_a, logs_b = _logs(a), _logs(b)
    if len(logs_a) != len(logs_b):
        raise ValueError(f"{len(logs_a)} values cannot be paired with {len(logs_b)}")
    logs = logs_b - logs_a
    half = _student_t(len(logs) - 1, confidence) * sqrt(_variance_of_mean(logs, 0))
    return _around(float(logs.mean()), half)


def unpaired_ratio(a: Sequence[float], b: Sequence[float], confidence: float) -> RatioInterval:
    """Return b / a with its interval, from values measured apart; a and b are resampled each on its own.

    Degrees of freedom are Welch's: neither needs as many values, nor as much noise, as the other.

    Raises:
        ValueError: too few values, or one that is not positive.
    """
    logs_a, logs_b = _logs(a), _logs(b)
    centre = float(logs_b.mean() - logs_a.mean())
    var_a, var_b = _variance_of_mean(logs_a, 1), _variance_of_mean(logs_b, 2)
    if var_a + var_b == 0:
        return _around(centre, 0.0)
    shares = var_a**2 / (len(logs_a) - 1) + var_b**2 / (len(logs_b) - 1)
    degrees = (var_a + var_b) ** 2 / shares
    return _around(centre, _student_t(degrees, confidence) * sqrt(var_a + var_b))


def _logs(values: Sequence[float]) -> _Floats:
    if len(values) < MINIMUM_REPEATS:
        raise ValueError(f"{len(values)} repeats are too few for an interval: {MINIMUM_REPEATS} are needed")
    if min(values) <= 0:
        raise ValueError("a ratio needs positive values")
    return np.log(np.asarray(values, dtype=np.float64))


def _variance_of_mean(values: _Floats, stream: int) -> float:
    """Return how much means of resamples vary, corrected for the values being themselves a sample."""
    means = _weights(len(values), stream) @ values
    return float(means.var()) * len(values) / (len(values) - 1)


@cache
def _weights(repeats: int, stream: int) -> _Floats:
    """Return the share of each repeat in each resample; always the same, to be able to compare anew."""
    counts = np.random.default_rng((_SEED, stream)).multinomial(repeats, [1 / repeats] * repeats, _RESAMPLES)
    return counts / repeats


def _around(centre: float, half: float) -> RatioInterval:
    return RatioInterval(exp(centre), exp(centre - half), exp(centre + half))


@cache
def _student_t(degrees: float, confidence: float) -> float:
    """Return how many standard errors to either side hold `confidence` of Student's t, by bisection."""
    low, high = 0.0, 1e4
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return high


def _within(bound: float, degrees: float) -> float:
    """Return the share of Student's t between both bounds, with t = sqrt(degrees) * tan(angle)."""
    angles, step = np.linspace(0, atan(bound / sqrt(degrees)), 2001, retstep=True)
    heights = np.cos(angles) ** (degrees - 1)
    area = float(step) * float(heights.sum() - (heights[0] + heights[-1]) / 2)
    return 2 * area * exp(lgamma((degrees + 1) / 2) - lgamma(degrees / 2)) / sqrt(pi)
