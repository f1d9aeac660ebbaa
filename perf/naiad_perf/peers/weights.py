"""The weights that every contestant gets: the GGUF file that the model was prepared from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

from naiad.contract.errors import InvalidArgument
from naiad.settings.model_directory import ModelManifest, read_manifest, resolve_model_directory
from naiad_perf.errors import PerfError

__all__ = ["SourceWeights", "find_source", "written_as"]

_GENERAL = "general.architecture"
_FILE_TYPE = "general.file_type"


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
    return SourceWeights(manifest.name, directory, path, _main_format(path))


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


def _main_format(path: Path) -> str:
    counts: dict[str, int] = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if len(tensor.shape) > 1:
            counts[tensor.tensor_type.name] = counts.get(tensor.tensor_type.name, 0) + 1
    return max(counts, key=lambda name: counts[name]).lower()


def written_as(source: Path, form: str, folder: Path) -> Path:
    """Return `source` with its matrices in another format, written into `folder` unless it is there already.

    Vectors stay as they are. The file appears whole or not at all.

    Args:
        source: GGUF file.
        form: ggml type, for example "q8_0".
        folder: for the result; created if absent.

    Raises:
        PerfError: the format is unknown, or the matrices' rows do not fit it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{source.stem}.as-{form}.gguf"
    if final.is_file() and final.stat().st_mtime >= source.stat().st_mtime:
        return final
    making = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        _write(gguf.GGUFReader(source), making, gguf.GGMLQuantizationType[form.upper()])
        making.replace(final)
    except (KeyError, NotImplementedError, gguf.QuantError) as error:
        raise PerfError(f"{source.name} cannot be written as {form}: {error}") from error
    finally:
        making.unlink(missing_ok=True)
    return final


def _write(reader: gguf.GGUFReader, path: Path, form: gguf.GGMLQuantizationType) -> None:
    writer = gguf.GGUFWriter(path, reader.fields[_GENERAL].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in (_GENERAL, _FILE_TYPE):
            continue  # the writer's own
        kind = field.types[0]
        inner = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim < 2:
            writer.add_tensor(tensor.name, values.astype(np.float32))
        else:
            writer.add_tensor(tensor.name, quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
