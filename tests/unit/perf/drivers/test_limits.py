"""How long a load may take, and how much of it goes on at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad_perf.drivers.limits import longest_s, places
from naiad_perf.workload.load import ClosedLoop, Load, OpenLoop
from tests.harness.load_tasks import load_task, prompts


@pytest.mark.parametrize(
    ("load", "at_once"), [(ClosedLoop(2), 2), (ClosedLoop(9), 5), (OpenLoop((0, 1, 2, 3, 4)), 5)]
)
def test_no_more_at_once_than_there_are(tmp_path: Path, load: Load, at_once: int) -> None:
    assert places(load_task(tmp_path, prompts(5), load)) == at_once


def test_a_closed_loop_may_take_all_rounds_of_the_longest_answers(tmp_path: Path) -> None:
    """Five requests, two at a time: three rounds of at most 30 s, and a minute."""
    assert longest_s(load_task(tmp_path, prompts(5), ClosedLoop(2), timeout_s=30)) == 150


def test_an_open_loop_may_take_its_schedule_and_the_last_answer(tmp_path: Path) -> None:
    load = OpenLoop((0, 2_000_000_000, 7_000_000_000))
    assert longest_s(load_task(tmp_path, prompts(3), load, timeout_s=30)) == 97
