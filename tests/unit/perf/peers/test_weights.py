"""The peers' weights: found by digest, written in another format with the same content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from naiad_perf.errors import PerfError
from naiad_perf.peers.weights import find_source, written_as
from tests.harness.tiny_gguf import write_tiny_gguf

Prepare = Callable[..., Path]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Makes an artifacts folder whose default model says that it comes from a source."""
    monkeypatch.delenv("NAIAD_MODEL_DIR", raising=False)

    def make(source: str, sha256: str | None) -> Path:
        folder = tmp_path / "artifacts" / "models" / "default"
        folder.mkdir(parents=True)
        manifest: dict[str, Any] = {
            "name": "tiny", "source": source, "pinned_source": source, "source_sha256": sha256,
            "format": "openvino-ir", "vocab_size": 264, "context_length": 64, "files": {},
            "tokenizer_sha256": "", "tool_versions": {}, "created_utc": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        (folder / "naiad_model.json").write_text(json.dumps(manifest))
        return tmp_path / "artifacts"

    return make


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_fetched_file_is_known_by_its_digest(prepare: Prepare, tmp_path: Path) -> None:
    fetched = tmp_path / "artifacts" / "sources" / "pypi" / "carrier-1.0" / "m.gguf" / "m.gguf"
    other = fetched.with_name("another.gguf")
    fetched.parent.mkdir(parents=True)
    write_tiny_gguf(fetched)
    other.write_bytes(b"not this one")
    found = find_source(prepare("pypi:carrier==1.0/m.gguf#sha256=aa", digest(fetched)))
    assert (found.model, found.gguf, found.format) == ("tiny", fetched, "f16")
    assert found.directory == tmp_path / "artifacts" / "models" / "default"


def test_a_file_of_this_machine_is_taken_where_it_lies(prepare: Prepare, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "mine.gguf")
    mine = tmp_path / "mine.gguf"
    assert find_source(prepare(f"gguf:{mine}", digest(mine))).gguf == mine


def test_a_changed_file_is_not_the_model_s(prepare: Prepare, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "mine.gguf")
    source = f"gguf:{tmp_path / 'mine.gguf'}"
    with pytest.raises(PerfError, match=f"naiad build prepare '{source}' --replace"):
        find_source(prepare(source, "0" * 64))


def test_a_model_that_is_not_from_gguf_has_no_peers(prepare: Prepare) -> None:
    with pytest.raises(PerfError, match="was prepared from dir:/models/ir, and the peers need a GGUF file"):
        find_source(prepare("dir:/models/ir", None))


def test_without_a_model_the_way_to_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAIAD_MODEL_DIR", raising=False)
    with pytest.raises(PerfError, match="default"):
        find_source(tmp_path)


def test_it_is_written_once(tmp_path: Path) -> None:
    source = tmp_path / "m.gguf"
    write_tiny_gguf(source)
    made = written_as(source, "q8_0", tmp_path)
    made.write_bytes(b"kept")
    assert written_as(source, "q8_0", tmp_path).read_bytes() == b"kept"


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "m.gguf"
    write_tiny_gguf(source)
    with pytest.raises(PerfError, match="cannot be written as q4_k"):
        written_as(source, "q4_k", tmp_path / "made")
    assert list((tmp_path / "made").iterdir()) == []
