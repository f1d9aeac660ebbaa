"""Names of load generators."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad_perf.drivers.registry import DEFAULT_DRIVER, DRIVERS, make_driver
from naiad_perf.errors import ScenarioError


@pytest.mark.parametrize("name", ["perf_analyzer", "aiperf", "locust"])
def test_each_driver_has_the_name_it_is_made_by(name: str, tmp_path: Path) -> None:
    assert make_driver(name, tmp_path).name == name


def test_those_are_all_and_perf_analyzer_is_the_default() -> None:
    assert set(DRIVERS) == {"perf_analyzer", "aiperf", "locust"}
    assert DEFAULT_DRIVER == "perf_analyzer"


def test_a_misspelt_name_is_told_the_right_one() -> None:
    with pytest.raises(ScenarioError, match="unknown driver 'perf-analyzer': did you mean perf_analyzer"):
        make_driver("perf-analyzer")


def test_an_unknown_name_is_told_all() -> None:
    with pytest.raises(ScenarioError, match="there are perf_analyzer, aiperf, locust"):
        make_driver("xyz")
