"""`naiad build render`: the committed configurations and reference pages, from the contract and profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from naiad.contract.errors import InvalidArgument
from naiad_build.commands.terminal import errors, explained
from naiad_build.contract_page import contract_page
from naiad_build.profile import known_profiles, load_profile, profile_path
from naiad_build.render import render_all
from naiad_build.template_variables import parse_variables, with_variables

__all__ = ["render"]


def render(
    variables: Annotated[
        str | None,
        typer.Argument(
            help="NVIDIA's template variables, for a configuration of your own (with --profile and --as).",
            metavar="NAME:VALUE,...",
        ),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile to start from.", metavar="PROFILE")] = None,
    name: Annotated[
        str | None, typer.Option("--as", help="Write configs/NAME.pbtxt of every model.", metavar="NAME")
    ] = None,
    repository: Annotated[Path, typer.Option(help="Model repository to write to.")] = Path(
        "model_repository"
    ),
    docs: Annotated[Path, typer.Option(help="Folder of the reference pages.")] = Path("docs"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if anything differs.")] = False,
) -> None:
    """Render every model's configuration for every profile, and docs/contract.md, from the contract.

    The profiles are the files of build/profiles; `tritonserver --model-config-name` chooses one.

    With template variables as NVIDIA's `fill_template.py` takes them it writes one configuration of your own
    instead. All models know all variables, so one call does what five did:

    - `naiad build render --profile h200_fp8 --as mine engine_dir:/engines/llama,triton_max_batch_size:64`
    """
    own = (variables is not None, profile is not None, name is not None)
    if any(own) and not (profile and name):
        errors.print("error: a configuration of your own needs both --profile and --as", markup=False)
        raise typer.Exit(2)
    with explained():
        if profile and name:
            files = _own(profile, name, variables or "")
        else:
            files = render_all(load_profile(profile_path(each)) for each in known_profiles())
    texts = {repository / place: text for place, text in files.items()}
    if not any(own):
        texts[docs / "contract.md"] = contract_page()
    _write(texts, check=check)


def _own(profile: str, name: str, variables: str) -> dict[str, str]:
    if not name.isidentifier():
        raise InvalidArgument(f"--as: {name!r} must be letters, digits and underscores")
    if profile_path(name).exists():
        raise InvalidArgument(f"--as: {name} is a profile of its own already; choose another name")
    filled = with_variables(load_profile(profile_path(profile)), parse_variables(variables))
    return render_all([filled.model_copy(update={"name": name})], f"`naiad build render --profile {profile}`")


def _write(texts: dict[Path, str], *, check: bool) -> None:
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in changed:
        typer.echo(f"{'differs' if check else 'written'}: {path}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], encoding="utf-8")
    if check and changed:
        errors.print("run `make render` and commit what it writes", markup=False)
        raise typer.Exit(1)
