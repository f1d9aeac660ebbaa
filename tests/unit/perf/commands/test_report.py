"""`naiad bench report` as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner, Result

from naiad_perf.commands.report import report_command
from tests.harness.synthetic_sweep import Engine, Load, write_sweep


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(report_command)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def folder(tmp_path) -> str:
    engine = Engine("engine", error_share=0.5)
    write_sweep(tmp_path / "sweep", [engine], [Load(concurrency=2, requests=6, output_tokens=4)], 1)
    return str(tmp_path / "sweep")


def test_the_report_goes_into_the_sweep_s_folder_and_its_files_are_named(folder):
    result = run(folder, "--no-png")
    assert result.exit_code == 0
    names = ("report.html", "runs.csv", "points.csv")
    assert result.stdout.split() == [f"{folder}/report/{name}" for name in names]


def test_title_folder_and_promise_can_be_stated(folder, tmp_path):
    out = str(tmp_path / "public")
    stated = ("--title", "Mine", "--ttft-ms", "77", "--error-budget", "0.1")
    result = run(folder, "--no-png", "--out", out, *stated)
    assert result.exit_code == 0
    text = (tmp_path / "public" / "report.html").read_text(encoding="utf-8")
    assert "<h1>Mine</h1>" in text
    assert "at most 77 ms" in text
    assert "over the error budget: engine at c2-i64-o4" in result.stderr


def test_a_second_report_takes_the_place_of_the_first_and_is_no_run(folder):
    for _ in range(2):
        assert run(folder, "--no-png").exit_code == 0


def test_what_is_no_sweep_is_refused_with_what_to_do(tmp_path):
    result = run(str(tmp_path))
    assert result.exit_code == 1
    assert "naiad bench sweep" in result.stderr


def test_without_the_extra_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "naiad_perf.report", None)
    result = run(folder)
    assert result.exit_code == 1
    assert "pip install 'naiad[bench]'" in result.stderr


def test_the_command_line_does_not_load_the_drawing_library_until_it_draws():
    code = "import sys, naiad_perf.cli; print('altair' in sys.modules, 'vl_convert' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["False", "False"]
