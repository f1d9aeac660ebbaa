"""GGUF files in another format hold the same model; what OpenVINO reads inexactly is rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from naiad.settings.model_directory import read_manifest
from naiad_build.errors import UnsupportedModelError
from naiad_build.gguf_weights import matrix_formats, write_gguf_as
from naiad_build.openvino_model import sample
from naiad_build.prepare import prepare
from tests.harness.tiny_gguf import write_tiny_gguf

FILE_TYPES = {"q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "f32": gguf.LlamaFileType.ALL_F32}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "m.gguf"
    write_tiny_gguf(path, all_bytes=False)
    return path


def content(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    reader = gguf.GGUFReader(path)
    said = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return said, {tensor.name: tensor for tensor in reader.tensors}


@pytest.mark.parametrize(("form", "off_by"), [("q8_0", 0.57 / 127), ("f32", 0.0)])
def test_another_format_holds_the_same_model(source: Path, tmp_path: Path, form: str, off_by: float) -> None:
    write_gguf_as(source, form, tmp_path / "made.gguf")
    (said, tensors), (said_now, tensors_now) = content(source), content(tmp_path / "made.gguf")
    assert said_now == said | {"general.file_type": FILE_TYPES[form]}
    assert tensors_now.keys() == tensors.keys()
    for name, tensor in tensors.items():
        now = tensors_now[name]
        assert now.tensor_type.name.lower() == (form if len(tensor.shape) > 1 else "f32")
        assert list(now.shape) == list(tensor.shape)
        before = dequantize(tensor.data, tensor.tensor_type)
        largest = np.abs(before).max()
        difference = np.abs(dequantize(now.data, now.tensor_type) - before).max()
        assert difference <= off_by * largest  # half a step, and what its scale loses in 16 bits


def test_matrices_that_are_kept_are_not_touched(source: Path, tmp_path: Path) -> None:
    assert matrix_formats(source) == {"f16": 9}
    write_gguf_as(source, "q8_0", tmp_path / "made.gguf", keep=frozenset({"f16"}))
    _, before = content(source)
    _, after = content(tmp_path / "made.gguf")
    assert all(np.array_equal(after[name].data, tensor.data) for name, tensor in before.items())


@pytest.mark.parametrize("form", ["q9_9", "q4_k"])
def test_a_format_that_cannot_be_written_is_named(source: Path, tmp_path: Path, form: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"m.gguf cannot be written as {form}"):
        write_gguf_as(source, form, tmp_path / "made.gguf")


@pytest.mark.openvino
@pytest.mark.parametrize(
    ("form", "said"),
    [("q4_1", "q8_0 from gguf q4_1"), ("q5_0", "q8_0 from gguf q5_0"), ("q4_0", "q4_0 from gguf")],
)
def test_the_built_engine_computes_with_the_weights_of_the_file(
    source: Path, tmp_path: Path, form: str, said: str
) -> None:
    """Against the same weights in f16. OpenVINO's own reader answers otherwise to q4_1, and refuses q5_0."""
    quantised, exact = tmp_path / "quantised.gguf", tmp_path / "exact.gguf"
    write_gguf_as(source, form, quantised)
    write_gguf_as(quantised, "f16", exact)
    built = prepare(f"gguf:{quantised}", tmp_path / "artifacts")
    reference = prepare(f"gguf:{exact}", tmp_path / "artifacts")
    manifest = read_manifest(built)
    assert manifest.format == f"openvino-ir {said}"
    vocab_size = manifest.vocab_size
    assert sample(built, vocab_size).ids[:8] == sample(reference, vocab_size).ids[:8]
