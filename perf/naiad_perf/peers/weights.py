"""The weights that every contestant gets: the GGUF file that the model was prepared from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from naiad.contract.errors import InvalidArgument
from naiad.settings.model_directory import ModelManifest, read_manifest, resolve_model_directory
from naiad_build.errors import UnsupportedModelError
from naiad_build.gguf_weights import matrix_formats, write_gguf_as
from naiad_perf.errors import PerfError

__all__ = ["SourceWeights", "find_source", "written_as"]


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """A prepared model and the GGUF file it came from.

    Attributes:
        model: name of the prepared model.
        directory: of the prepared model.
        gguf: the file.
        format: ggml type of most of its matrices, in lower case.
    """

    model: str
    directory: Path
    gguf: Path
    format: str


def find_source(artifacts: Path) -> SourceWeights:
    """Return the source of the model that is served: the default one, or that of ``NAIAD_MODEL_DIR``.

    Raises:
        PerfError: no model is prepared, it was not made from a GGUF file, or that file is gone.
    """
    try:
        directory = resolve_model_directory(str(artifacts.absolute() / "models" / "default"), None).resolve()
        manifest = read_manifest(directory)
    except InvalidArgument as error:
        raise PerfError(error.message) from error
    path = _source_file(manifest, artifacts)
    formats = matrix_formats(path)
    return SourceWeights(manifest.name, directory, path, max(formats, key=lambda name: formats[name]))


def _source_file(manifest: ModelManifest, artifacts: Path) -> Path:
    kind, _, rest = manifest.source.partition(":")
    if manifest.source_sha256 is None or not manifest.source.partition("#")[0].endswith(".gguf"):
        raise PerfError(
            f"the model was prepared from {manifest.source}, and the peers need a GGUF file: "
            "`naiad setup` prepares one"
        )
    candidates = [Path(rest)] if kind == "gguf" else sorted((artifacts / "sources").rglob("*.gguf"))
    for path in candidates:
        if path.is_file() and sha256(path.read_bytes()).hexdigest() == manifest.source_sha256:
            return path.resolve()
    raise PerfError(
        f"the GGUF file that the model was made from is gone; to fetch it again: "
        f"naiad build prepare '{manifest.source}' --replace"
    )


def written_as(source: Path, form: str, folder: Path) -> Path:
    """Return `source` with its matrices in another format, written into `folder` unless it is there already.

    The file appears whole or not at all.

    Raises:
        PerfError: the format is unknown, or the matrices' rows do not fit it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{source.stem}.as-{form}.gguf"
    if final.is_file() and final.stat().st_mtime >= source.stat().st_mtime:
        return final
    making = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        write_gguf_as(source, form, making)
        making.replace(final)
    except UnsupportedModelError as error:
        raise PerfError(str(error)) from error
    finally:
        making.unlink(missing_ok=True)
    return final
