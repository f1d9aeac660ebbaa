"""`naiad build render`: the committed configurations and reference pages, from the contract and profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from naiad_build.commands.terminal import errors, explained
from naiad_build.contract_page import contract_page
from naiad_build.profile import PROFILES_FOLDER, load_profile
from naiad_build.render import render_all

__all__ = ["render"]


def render(
    repository: Annotated[Path, typer.Option(help="Model repository to write to.")] = Path(
        "model_repository"
    ),
    docs: Annotated[Path, typer.Option(help="Folder of the reference pages.")] = Path("docs"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if anything differs.")] = False,
) -> None:
    """Render every model's configuration for every profile, and docs/contract.md, from the contract.

    The profiles are the files of build/profiles; `tritonserver --model-config-name` chooses one.
    """
    with explained():
        profiles = [load_profile(path) for path in sorted(PROFILES_FOLDER.glob("*.yaml"))]
    files = {repository / name: text for name, text in render_all(profiles).items()}
    files[docs / "contract.md"] = contract_page()
    changed = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in changed:
        typer.echo(f"{'differs' if check else 'written'}: {path}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
    if check and changed:
        errors.print("run `make render` and commit what it writes", markup=False)
        raise typer.Exit(1)
