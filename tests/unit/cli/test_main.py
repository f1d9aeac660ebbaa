"""The command line as a whole: what it lists, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from naiad.cli.main import app

COMMANDS = ("setup", "demo", "serve", "ask", "chat", "models", "health", "build", "bench")
GROUPS = {
    "build": ("plan", "prepare", "quantize", "engine", "show", "render"),
    "bench": (
        "sweep",
        "scenarios",
        "peers",
        "overhead",
        "report",
        "compare",
        "perf-analyzer",
        "aiperf",
        "locust",
    ),
}
EVERY_COMMAND: list[tuple[str, ...]] = [(name,) for name in COMMANDS] + [
    (group, name) for group, names in GROUPS.items() for name in names
]
README = Path(__file__).parents[3] / "README.md"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def listed(output: str) -> set[str]:
    """The first words of the rows in the tables of commands; the one of options has none."""
    return set(re.findall(r"^│ ([a-z][a-z-]*) ", output, re.MULTILINE))


def test_help_lists_every_command_and_no_other() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert listed(result.output) == set(COMMANDS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_groups_help_lists_its_commands_and_no_other(group: str) -> None:
    result = run(group, "--help")
    assert result.exit_code == 0
    assert listed(result.output) == set(GROUPS[group])


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_every_command_explains_itself_in_a_sentence(words: tuple[str, ...]) -> None:
    result = run(*words, "--help")
    assert result.exit_code == 0
    usage, sentence, *_ = (line.strip() for line in result.output.splitlines() if line.strip())
    assert usage.startswith("Usage: ")
    assert f" {' '.join(words)} [OPTIONS]" in usage
    assert sentence.endswith(".")


def test_without_a_command_the_help_is_shown_and_the_status_is_that_of_wrong_usage() -> None:
    result = run()
    assert result.exit_code == 2
    assert listed(result.output) == set(COMMANDS)


@pytest.mark.parametrize("words", [("nonsense",), ("build", "nonsense"), ("bench", "nonsense")], ids=" ".join)
def test_an_unknown_command_is_refused_by_name(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.stderr
    assert result.stdout == ""


def test_an_unknown_option_is_refused_by_name() -> None:
    result = run("demo", "--nonsense")
    assert result.exit_code == 2
    assert "--nonsense" in result.stderr


def test_every_command_that_the_readme_runs_exists() -> None:
    text = README.read_text("utf-8")
    run_there = set(re.findall(r"^\$ \S*naiad ((?:build |bench )?[a-z][a-z-]*)", text, re.MULTILINE))
    run_there |= set(re.findall(r"`naiad ((?:build |bench )?[a-z][a-z-]*)", text))
    assert run_there
    assert {tuple(words.split()) for words in run_there} <= set(EVERY_COMMAND)
