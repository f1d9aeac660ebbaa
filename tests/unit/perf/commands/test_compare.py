"""`naiad bench compare` as a whole: arguments in, text and exit status out, over sweeps in files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from naiad_perf.commands.compare import compare_command
from tests.harness.synthetic_sweep import Engine, Load, write_sweep

FAST, SLOW = Engine("fast"), Engine("slow", step_ms=13, stream_ms=0.8)
LOADS = (Load(concurrency=1, requests=8, output_tokens=8), Load(concurrency=4, requests=12, output_tokens=8))

Sweep = Callable[..., str]


@pytest.fixture
def sweep(tmp_path) -> Sweep:
    """Write a sweep and return its folder."""

    def write(name: str = "sweep", engines=(FAST, SLOW), repeats: int = 3, **options) -> str:
        write_sweep(tmp_path / name, engines, LOADS, repeats, **options)
        return str(tmp_path / name)

    return write


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(compare_command)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


def line(result: Result, start: str) -> str:
    return next(text for text in result.stdout.splitlines() if text.startswith(start)).rstrip()


def test_two_subjects_of_one_sweep_are_paired(sweep):
    result = run(sweep(), "fast", "slow")
    assert result.exit_code == 0
    assert "A is fast, B is slow" in result.stdout
    assert "repeats paired" in result.stdout
    assert "warning" not in result.stdout
    assert "overall: geometric mean of 2 points" in result.stdout
    assert line(result, "Tokens/s ").endswith("worse")
    assert line(result, "ITL p50").endswith("worse")


def test_a_folder_of_two_subjects_needs_no_names_and_the_order_turns_the_verdict(sweep):
    folder = sweep()
    assert "A is fast, B is slow" in run(folder).stdout
    turned = run(f"{folder}:slow", f"{folder}:fast")
    assert "repeats paired" in turned.stdout
    assert line(turned, "Tokens/s ").endswith("better")


def test_two_sweeps_are_compared_unpaired_with_a_warning(sweep):
    result = run(f"{sweep('before')}:fast", sweep("after", engines=(SLOW,)))
    assert result.exit_code == 0
    assert "warning: A and B come from different sweeps" in result.stdout
    assert "repeats not paired" in result.stdout


def test_the_same_subject_of_two_sweeps_is_named_with_its_folder(sweep):
    before, after = sweep("before", engines=(FAST,)), sweep("after", engines=(FAST,), seed=1)
    assert f"A is {before}:fast, B is {after}:fast" in run(before, after).stdout.replace("\n", " ")


def test_every_point_is_shown_when_asked_for(sweep):
    result = run(sweep(), "--by-point", "--figure", "tokens_per_s")
    titles = [text.rstrip() for text in result.stdout.splitlines() if text.startswith(("c1-", "c4-", "over"))]
    assert titles == ["c1-i64-o8", "c4-i64-o8", "overall: geometric mean of 2 points"]
    assert result.stdout.count("Tokens/s ") == 3
    assert "ITL" not in result.stdout


def test_undefined_figures_are_dashes(sweep):
    result = run(sweep())
    assert "–" in line(result, "Goodput share")
    assert "undefined" in line(result, "Goodput share")


@pytest.mark.parametrize(
    ("gate", "status", "said"),
    [
        ("tokens_per_s:0.05", 1, "gate tokens_per_s, at most 0.05 worse, overall: does not hold"),
        ("tokens_per_s:0.9", 0, "gate tokens_per_s, at most 0.9 worse, overall: holds"),
        ("ttft_ms_p50:0.9", 0, "holds"),
        ("goodput_per_s:0.1", 2, "cannot be judged: undefined"),
    ],
)
def test_gates_decide_the_exit_status(sweep, gate, status, said):
    result = run(sweep(), "--gate", gate)
    assert result.exit_code == status
    assert said in result.stdout


def test_a_gate_that_needs_more_repeats_is_not_passed_in_silence(sweep):
    result = run(sweep(repeats=2), "--gate", "tokens_per_s:0.5")
    assert result.exit_code == 2
    assert "cannot be judged: 2 repeats, 3 are needed" in result.stdout


def test_more_errors_than_the_scenario_allows_end_with_3_even_when_gates_fail(sweep):
    failing = Engine("failing", step_ms=20, error_share=0.5)
    folder = sweep(engines=(FAST, failing), scenario="error_budget: 0.1\n")
    result = run(folder, "fast", "failing", "--gate", "tokens_per_s:0.05")
    assert result.exit_code == 3
    assert "over the error budget: failing at c1-i64-o8, repeat 0:" in result.stdout
    assert run(folder, "fast", "failing", "--error-budget", "1").exit_code == 0


def test_without_a_scenario_only_a_stated_budget_is_judged(sweep):
    folder = sweep(engines=(FAST, Engine("failing", error_share=0.5)))
    assert run(folder).exit_code == 0
    assert run(folder, "--error-budget", "0.01").exit_code == 3


def test_goodput_is_by_the_scenario_unless_stated(sweep):
    folder = sweep(scenario="slos: {ttft_ms: 1000}\nerror_budget: 1\n")
    assert "1.000" in line(run(folder), "Goodput share")
    strict = line(run(folder, "--ttft-ms", "0.01"), "Goodput share")
    assert "zero" in strict


def test_json_has_every_figure_at_every_point(sweep):
    result = run(sweep(), "--json", "--gate", "tokens_per_s:0.05")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["paired"] is True
    rows = {(row["figure"], row["point"]): row for row in found["figures"]}
    speed = rows["tokens_per_s", "overall"]
    assert speed["low"] < speed["ratio"] < speed["high"] < 1
    assert speed["verdict"] == "worse"
    assert rows["tokens_per_s", "c1-i64-o8"]["a"] > rows["tokens_per_s", "c1-i64-o8"]["b"]
    assert rows["goodput_share", "overall"]["ratio"] is None
    assert found["gates"] == [
        {"figure": "tokens_per_s", "tolerance": 0.05, "point": "overall", "held": False}
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{folder}", "fast", "none"), "no subject 'none', only fast, slow"),
        (("{folder}", "{folder}:slow"), "several subjects: write {folder}:SUBJECT with one of fast, slow"),
        (("{folder}/absent", "{folder}"), "naiad bench sweep"),
        (("{folder}", "fast", "slow", "more"), "two folders"),
        (("{folder}", "fast", "fast"), "A and B are both fast of {folder}"),
        (("{folder}", "--gate", "tokens_per_s"), "tokens_per_s:0.05"),
        (("{folder}", "--figure", "token_per_s"), "did you mean"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_would_be_right(sweep, arguments, said):
    folder = sweep()
    result = run(*(text.format(folder=folder) for text in arguments))
    assert result.exit_code == 2
    assert said.format(folder=folder) in result.stderr


def test_one_folder_of_three_subjects_needs_names(sweep):
    result = run(sweep(engines=(FAST, SLOW, Engine("third"))))
    assert result.exit_code == 2
    assert "fast, slow, third: name two of them" in result.stderr


def test_a_wrong_scenario_is_refused_by_name(sweep):
    folder = sweep(scenario="slos: {ttft: 5}\n")
    result = run(folder)
    assert result.exit_code == 2
    assert "scenario.yaml" in result.stderr
    assert Path(folder).is_dir()
