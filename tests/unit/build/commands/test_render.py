"""`naiad build render`: writes what differs, and with `--check` only names it and fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from naiad_build.cli import app

ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Checkout:
    """A model repository and a folder of pages that the command works on."""

    repository: Path
    docs: Path

    def render(self, *words: str) -> Result:
        places = ["--repository", str(self.repository), "--docs", str(self.docs)]
        return CliRunner().invoke(app, ["render", *places, *words])

    def files(self) -> dict[Path, str]:
        found = [*self.repository.rglob("*"), *self.docs.rglob("*")]
        return {path: path.read_text("utf-8") for path in found if path.is_file()}


@pytest.fixture
def rendered(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path / "repository", tmp_path / "docs")
    assert checkout.render().exit_code == 0
    return checkout


def test_what_is_committed_passes_the_check() -> None:
    result = Checkout(ROOT / "model_repository", ROOT / "docs").render("--check")
    assert (result.exit_code, result.output) == (0, "")


def test_what_was_just_rendered_passes_the_check(rendered: Checkout) -> None:
    result = rendered.render("--check")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(
    "name",
    [
        "repository/tensorrt_llm/config.pbtxt",
        "repository/tensorrt_llm_bls/configs/synthetic.pbtxt",
        "docs/contract.md",
    ],
)
def test_a_file_that_differs_fails_the_check_by_its_name_and_is_left_alone(
    rendered: Checkout, name: str
) -> None:
    path = rendered.repository.parent / name
    path.write_text(path.read_text("utf-8") + "# by hand\n", encoding="utf-8")
    before = rendered.files()
    result = rendered.render("--check")
    assert result.exit_code == 1
    assert result.stdout == f"differs: {path}\n"
    assert "make render" in result.stderr
    assert rendered.files() == before


def test_a_file_that_is_missing_fails_the_check_and_is_not_written(rendered: Checkout) -> None:
    path = rendered.repository / "preprocessing" / "configs" / "cpu_unary.pbtxt"
    path.unlink()
    result = rendered.render("--check")
    assert result.exit_code == 1
    assert result.stdout == f"differs: {path}\n"
    assert not path.exists()


def test_every_file_that_differs_is_named(rendered: Checkout) -> None:
    changed = {
        rendered.repository / "ensemble" / "config.pbtxt",
        rendered.repository / "postprocessing" / "config.pbtxt",
    }
    for path in changed:
        path.write_text("", encoding="utf-8")
    result = rendered.render("--check")
    assert result.exit_code == 1
    assert set(result.stdout.splitlines()) == {f"differs: {path}" for path in changed}


def test_rendering_repairs_what_differs_and_touches_nothing_else(rendered: Checkout) -> None:
    before = rendered.files()
    path = rendered.repository / "tensorrt_llm" / "config.pbtxt"
    path.write_text("", encoding="utf-8")
    result = rendered.render()
    assert (result.exit_code, result.output) == (0, f"written: {path}\n")
    assert rendered.files() == before
