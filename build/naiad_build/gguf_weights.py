"""GGUF files with their matrices in another format, so that every reader takes them for what they are.

OpenVINO GenAI 2026.4's own reader keeps a block's offset as a 4-bit zero point, rounded: exact for `q4_0` and
`q8_0`, wrong by up to half a step in every weight of a block for `q4_1` and the K formats. SmolLM2-135M in
`q4_1` then says that the largest planet is Mars; llama.cpp and transformers read Jupiter from the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

from naiad_build.errors import UnsupportedModelError

__all__ = ["matrix_formats", "write_gguf_as"]

_GENERAL = "general.architecture"
_FILE_TYPE = "general.file_type"


def matrix_formats(path: Path) -> dict[str, int]:
    """Return ggml types of the file's matrices in lower case, and how many have each."""
    counts: dict[str, int] = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if len(tensor.shape) > 1:
            name = tensor.tensor_type.name.lower()
            counts[name] = counts.get(name, 0) + 1
    return counts


def write_gguf_as(source: Path, form: str, target: Path, *, keep: frozenset[str] = frozenset()) -> None:
    """Write `source` to `target` with its matrices in another format; vectors stay as they are.

    `q8_0` is off by at most 0.57 / 127 of the largest weight of each 32: half a step, and what its
    scale loses in 16 bits.

    Args:
        source: GGUF file.
        form: ggml type, for example "q8_0".
        target: file to write.
        keep: formats whose matrices stay as they are.

    Raises:
        UnsupportedModelError: the format cannot be written, or the matrices' rows do not fit it.
    """
    try:
        _write(gguf.GGUFReader(source), target, gguf.GGMLQuantizationType[form.upper()], keep)
    except (KeyError, NotImplementedError, gguf.QuantError) as error:
        raise UnsupportedModelError(f"{source.name} cannot be written as {form}: {error}") from error


def _write(
    reader: gguf.GGUFReader, path: Path, form: gguf.GGMLQuantizationType, keep: frozenset[str]
) -> None:
    writer: Any = gguf.GGUFWriter(path, reader.fields[_GENERAL].contents())
    writer.add_file_type(_file_type(form))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in (_GENERAL, _FILE_TYPE):
            continue  # the writer's own
        kind = field.types[0]
        inner = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    for tensor in reader.tensors:
        matrix = len(tensor.shape) > 1
        if tensor.tensor_type.name.lower() in keep and matrix:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        values = dequantize(tensor.data, tensor.tensor_type)
        if matrix:
            writer.add_tensor(tensor.name, quantize(values, form), raw_dtype=form)
        else:
            writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _file_type(form: gguf.GGMLQuantizationType) -> int:
    """Return llama.cpp's number for a file that is mostly of a format; readers may insist on one."""
    names = gguf.LlamaFileType.__members__
    found = names.get(f"MOSTLY_{form.name}") or names.get(f"ALL_{form.name}")
    if found is None:
        raise KeyError(f"no file type for {form.name}")
    return int(found)
