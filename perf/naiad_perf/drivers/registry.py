"""Load generators by the name that a scenario gives them."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from naiad_perf.drivers.aiperf_driver import AiperfDriver
from naiad_perf.drivers.base import Driver
from naiad_perf.drivers.locust_driver import LocustDriver
from naiad_perf.drivers.perf_analyzer_driver import PerfAnalyzerDriver
from naiad_perf.errors import ScenarioError

__all__ = ["DEFAULT_DRIVER", "DRIVERS", "make_driver"]

DRIVERS: dict[str, Callable[[Path], Driver]] = {
    PerfAnalyzerDriver.name: PerfAnalyzerDriver,
    AiperfDriver.name: AiperfDriver,
    LocustDriver.name: LocustDriver,
}
"""Name -> constructor, which takes the folder for fetched programs."""

DEFAULT_DRIVER = PerfAnalyzerDriver.name


def make_driver(name: str, artifacts: Path = Path(".artifacts")) -> Driver:
    """Return the driver of that name; nothing is installed or started yet.

    Args:
        name: as written in a scenario.
        artifacts: folder where fetched programs are kept.

    Raises:
        ScenarioError: there is no such driver.
    """
    try:
        make = DRIVERS[name]
    except KeyError:
        near = difflib.get_close_matches(name, DRIVERS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ScenarioError(f"unknown driver {name!r}: {hint}there are {', '.join(DRIVERS)}") from None
    return make(artifacts)
