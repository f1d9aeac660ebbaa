"""Finding a contestant's best settings: one knob after the other, each value tried, the best kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from naiad_perf.errors import PerfError

__all__ = ["Trial", "tuned"]

_WORTH = 1.03
"""A change must gain this much: less is noise, and the usual setting is the better known one."""

Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting that was tried.

    Attributes:
        settings: in words.
        tokens_per_s: what it gave; None when it did not run.
    """

    settings: str
    tokens_per_s: float | None


def tuned(
    first: Settings,
    knobs: Mapping[str, Sequence[Any]],
    speed: Callable[[Settings], float],
    note: Callable[[Trial], None],
) -> Settings:
    """Return the best settings found.

    Every knob is turned with the best values of those before it. A value that does not run loses.

    Args:
        first: where to begin; a frozen dataclass.
        knobs: values to try of each field, in order of trying.
        speed: tokens/s of a setting; raises `PerfError` for one that does not run.
        note: told of every trial.

    Raises:
        PerfError: not one setting ran.
    """

    def tried(settings: Settings) -> float | None:
        try:
            value: float | None = speed(settings)
        except PerfError as error:
            failures.append(error)
            value = None
        note(Trial(str(settings), value))
        return value

    failures: list[PerfError] = []
    best, best_speed = first, tried(first)
    for knob, values in knobs.items():
        usual = getattr(best, knob)
        for value in values:
            if value == usual:
                continue
            candidate: Settings = replace(best, **{knob: value})  # type: ignore[type-var]
            found = tried(candidate)
            if found is not None and (best_speed is None or found > best_speed * _WORTH):
                best, best_speed = candidate, found
    if best_speed is None:
        raise failures[0]
    return best
