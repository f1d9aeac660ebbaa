"""A folder of runs, read back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from naiad_perf.errors import RecordError
from naiad_perf.metrics import FIGURES, Slos
from naiad_perf.records import write_run
from naiad_perf.results import Spread, read_results, result_of, summarise
from tests.harness.recorded_runs import FACTS, request, run_of


def run_taking(ms: float, *, subject: str = "bls", repeat: int = 0, position: int = 0, tokens: int = 1):
    facts = replace(FACTS, subject=subject, repeat=repeat, position=position)
    return run_of(request(0, [(ms, tokens)]), facts=facts)


def test_runs_come_back_in_the_order_of_running_with_their_figures(tmp_path):
    write_run(run_taking(200, repeat=1, position=1), tmp_path / "a.parquet")
    write_run(run_taking(100, repeat=0, position=0), tmp_path / "b.parquet")
    heard = []
    first, second = read_results(tmp_path, Slos(ttft_ms=150), lambda done, total: heard.append((done, total)))
    assert (first.facts.repeat, second.facts.repeat) == (0, 1)
    assert (first.figures["ttft_ms_p50"], second.figures["ttft_ms_p50"]) == (100, 200)
    assert (first.figures["goodput_share"], second.figures["goodput_share"]) == (100, 0)
    assert first.path == tmp_path / "b.parquet"
    assert heard == [(1, 2), (2, 2)]


def test_what_is_half_written_is_no_run(tmp_path):
    write_run(run_taking(100), tmp_path / "a.parquet")
    (tmp_path / ".b.parquet.4711").write_bytes(b"PAR1")
    assert len(read_results(tmp_path, Slos())) == 1


def test_a_folder_that_is_none_or_empty_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(RecordError, match="naiad bench sweep"):
        read_results(tmp_path / "absent", Slos())
    with pytest.raises(RecordError, match="naiad bench sweep"):
        read_results(tmp_path, Slos())


def test_two_records_of_the_same_run_are_refused_by_name(tmp_path):
    for name in ("a", "b"):
        write_run(run_taking(100), tmp_path / f"{name}.parquet")
    with pytest.raises(RecordError, match=r"a\.parquet and .*b\.parquet are both repeat 0 of bls"):
        read_results(tmp_path, Slos())


def test_repeats_of_a_point_become_median_lowest_and_highest():
    runs = [run_taking(ms, repeat=repeat) for repeat, ms in enumerate((300, 100, 200))]
    (summary,) = summarise([result_of(run, Slos()) for run in runs])
    assert summary.figures["ttft_ms_p50"] == Spread(200, 100, 300, 3)
    assert summary.median("ttft_ms_p50") == 200
    assert summary.median("itl_ms_p50") is None
    assert set(summary.figures) == set(FIGURES)


def test_a_figure_defined_in_some_repeats_counts_those():
    one = result_of(run_taking(100), Slos())
    two = result_of(run_of(request(0, [(50, 1), (90, 1)]), facts=replace(FACTS, repeat=1)), Slos())
    (summary,) = summarise([one, two])
    assert summary.figures["itl_ms_p50"] == Spread(40, 40, 40, 1)


def test_subjects_and_points_stay_apart_in_the_order_in_which_they_first_ran():
    runs = [
        run_taking(100, subject="late", position=2),
        run_taking(100, subject="early", position=0),
        run_taking(100, subject="early", repeat=1, position=3),
    ]
    early, late = summarise([result_of(run, Slos()) for run in runs])
    assert (early.facts.subject, len(early.results)) == ("early", 2)
    assert (late.facts.subject, len(late.results)) == ("late", 1)


def test_the_typical_repeat_is_that_of_median_speed():
    runs = [run_taking(1000, repeat=n, tokens=tokens) for n, tokens in enumerate((50, 10, 12))]
    (summary,) = summarise([result_of(run, Slos()) for run in runs])
    assert summary.typical.figures["tokens_per_s"] == 12


def test_without_any_speed_the_first_repeat_is_typical():
    still = run_of(facts=FACTS)
    (summary,) = summarise([result_of(still, Slos())])
    assert summary.typical.facts.repeat == 0
