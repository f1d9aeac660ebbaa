"""`naiad setup`: what is missing is installed and prepared, what is there is kept, and failures explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from naiad.cli import setup
from naiad.cli.main import app
from naiad.contract.errors import InvalidArgument
from naiad.server.errors import InstallError
from naiad_build.errors import SourceError
from naiad_build.progress import Progress
from naiad_build.sources import DEFAULT_SOURCE


@dataclass
class Installers:
    """Stand-ins for the two slow steps: they write what the real ones would, or raise `failure`."""

    steps: list[str] = field(default_factory=list)
    failure: Exception | None = None

    def locate_or_install(self, artifacts: Path, progress: Callable[[str], None]) -> None:
        progress("installing a server")
        self.steps.append(f"server in {artifacts}")
        if self.failure is not None:
            raise self.failure

    def prepare(self, source: str, artifacts: Path, *, progress: Progress) -> Path:
        progress("fetching", 1, 2)
        self.steps.append(f"{source} in {artifacts}")
        model = artifacts / "models" / "default"
        model.mkdir(parents=True)
        return model


@pytest.fixture
def installers(monkeypatch: pytest.MonkeyPatch) -> Installers:
    stand_ins = Installers()
    monkeypatch.setattr(setup, "locate_or_install", stand_ins.locate_or_install)
    monkeypatch.setattr(setup, "prepare", stand_ins.prepare)
    return stand_ins


def run(artifacts: Path) -> Result:
    return CliRunner().invoke(app, ["setup", "--artifacts", str(artifacts)])


def test_the_server_comes_first_and_then_the_default_model(installers: Installers, tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert installers.steps == [f"server in {tmp_path}", f"{DEFAULT_SOURCE} in {tmp_path}"]


def test_a_model_that_is_there_is_kept(installers: Installers, tmp_path: Path) -> None:
    run(tmp_path)
    installers.steps.clear()
    assert run(tmp_path).exit_code == 0
    assert installers.steps == [f"server in {tmp_path}"]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            InstallError("no server for this machine", "use a container"),
            "no server for this machine\n  -> ",
        ),
        (SourceError("the digest of [model] is another"), "the digest of [model] is another"),
        (InvalidArgument("config.json is missing"), "config.json is missing"),
    ],
    ids=["server", "build", "contract"],
)
def test_an_expected_failure_is_told_on_stderr_without_a_traceback(
    installers: Installers, tmp_path: Path, failure: Exception, said: str
) -> None:
    installers.failure = failure
    result = run(tmp_path)
    assert result.exit_code == 1
    assert f"error: {said}" in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert not (tmp_path / "models").exists()


def test_a_failure_that_nobody_expected_is_not_dressed_up(installers: Installers, tmp_path: Path) -> None:
    installers.failure = ZeroDivisionError("a defect")
    result = run(tmp_path)
    assert result.exception is installers.failure
    assert "error:" not in result.output
