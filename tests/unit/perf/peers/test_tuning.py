"""Settings are tried one knob after the other, and only a real gain is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from naiad_perf.errors import PerfError
from naiad_perf.peers.tuning import Trial, tuned


@dataclass(frozen=True)
class Settings:
    size: int = 1
    color: str = "red"

    def __str__(self) -> str:
        return f"{self.color} {self.size}"


KNOBS = {"size": (1, 2, 3), "color": ("red", "blue")}
SPEEDS = {"red 1": 100.0, "red 2": 150.0, "red 3": 120.0, "blue 2": 154.0, "blue 1": 900.0}


def speed_of(speeds: dict[str, float]) -> Callable[[Settings], float]:
    def speed(settings: Settings) -> float:
        if str(settings) not in speeds:
            raise PerfError(f"{settings} does not run")
        return speeds[str(settings)]

    return speed


def test_each_knob_is_turned_with_the_best_of_those_before() -> None:
    trials: list[Trial] = []
    best = tuned(Settings(), KNOBS, speed_of(SPEEDS), trials.append)
    assert [trial.settings for trial in trials] == ["red 1", "red 2", "red 3", "blue 2"]
    assert [trial.tokens_per_s for trial in trials] == [100, 150, 120, 154]
    assert best == Settings(2, "red"), "4 in 150 is noise, and the usual setting stays"


def test_a_gain_of_more_than_three_percent_is_taken() -> None:
    assert tuned(Settings(), KNOBS, speed_of(SPEEDS | {"blue 2": 155.0}), lambda _: None) == Settings(
        2, "blue"
    )


def test_what_does_not_run_loses_and_is_noted() -> None:
    trials: list[Trial] = []
    assert tuned(Settings(), KNOBS, speed_of({"red 3": 1.0}), trials.append) == Settings(3, "red")
    assert {trial.settings for trial in trials if trial.tokens_per_s is None} == {"red 1", "red 2", "blue 3"}


def test_when_nothing_runs_the_first_failure_is_told() -> None:
    with pytest.raises(PerfError, match="red 1 does not run"):
        tuned(Settings(), KNOBS, speed_of({}), lambda _: None)
