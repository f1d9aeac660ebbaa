import json
import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from naiad.settings.model_directory import ModelDirectory, read_manifest
from naiad_build.cli import app
from naiad_build.disk import publish, sha256_of, staging_directory
from naiad_build.errors import BuildError, ConversionError, SourceError, UnsupportedModelError
from naiad_build.openvino_model import Sample, check_sample
from naiad_build.prepare import is_prepared, link_default, prepare
from tests.harness.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "Tiny-Chat.F16.gguf"
    write_tiny_gguf(path, all_bytes=False)
    return path


@pytest.fixture(scope="module")
def prepared(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model prepared for real: converted by OpenVINO and tried out. Tests must not change it."""
    return prepare(f"gguf:{gguf}", tmp_path_factory.mktemp("artifacts"))


def visible(models: Path) -> list[str]:
    return sorted(path.name for path in models.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.openvino
def test_a_gguf_becomes_a_whole_model_directory(prepared: Path, gguf: Path) -> None:
    manifest = read_manifest(prepared)
    assert prepared.name == manifest.name == "tiny-chat"
    assert manifest.format == "openvino-ir f32 from gguf"
    assert manifest.source_sha256 == sha256_of(gguf)
    assert manifest.tokenizer_sha256 == sha256_of(prepared / "tokenizer.json")
    assert manifest.chat_template_sha256 == sha256_of(prepared / "chat_template.jinja")
    assert set(manifest.files) == {path.name for path in prepared.iterdir()} - {"naiad_model.json"}
    assert {"openvino_model.xml", "openvino_tokenizer.xml", "openvino_detokenizer.bin"} < set(manifest.files)
    assert not any(path.is_symlink() or path.suffix == ".gguf" for path in prepared.iterdir())
    assert all(record.sha256 == sha256_of(prepared / name) for name, record in manifest.files.items())
    assert ModelDirectory.load(prepared).eos_ids == (2, 0)


@pytest.mark.openvino
def test_the_first_model_becomes_the_default(prepared: Path) -> None:
    assert visible(prepared.parent) == ["default", "tiny-chat"]
    assert (prepared.parent / "default").resolve() == prepared
    assert os.readlink(prepared.parent / "default") == "tiny-chat"  # relative: the tree can be moved


@pytest.mark.openvino
def test_preparing_again_does_no_work(prepared: Path, gguf: Path) -> None:
    steps: list[str] = []
    again = prepare(
        f"gguf:{gguf}",
        prepared.parents[1],
        progress=lambda step, done_bytes=0, total_bytes=None: steps.append(step),
    )
    assert (again, steps) == (prepared, ["Already prepared"])


@pytest.mark.openvino
def test_a_name_is_not_taken_over_by_another_source(prepared: Path, gguf: Path, tmp_path: Path) -> None:
    other = tmp_path / gguf.name
    other.write_bytes(gguf.read_bytes())
    with pytest.raises(BuildError, match="another source"):
        prepare(f"gguf:{other}", prepared.parents[1])


@pytest.mark.openvino
def test_an_openvino_folder_is_copied_and_tried_out(prepared: Path, tmp_path: Path) -> None:
    copied = prepare(f"dir:{prepared}", tmp_path, name="copy")
    assert read_manifest(copied).format == "openvino-ir as given"
    assert sha256_of(copied / "openvino_model.bin") == sha256_of(prepared / "openvino_model.bin")


@pytest.mark.openvino
def test_an_engine_that_does_not_load_is_never_published(prepared: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in prepared.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "openvino_model.xml").write_text("<net>")
    with pytest.raises(ConversionError, match="OpenVINO failed"):
        prepare(f"dir:{broken}", tmp_path / "artifacts")
    assert visible(tmp_path / "artifacts" / "models") == []


@pytest.mark.openvino
def test_weights_openvino_refuses_leave_nothing_behind(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "empty.gguf", weights=False)
    with pytest.raises(ConversionError):
        prepare(f"gguf:{tmp_path / 'empty.gguf'}", tmp_path / "artifacts")
    assert visible(tmp_path / "artifacts" / "models") == []
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".xml"] == []


@pytest.mark.parametrize("damage", ["manifest", "missing file", "short file"])
def test_a_damaged_directory_is_not_prepared(tmp_path: Path, damage: str) -> None:
    directory = whole_directory(tmp_path / "model")
    assert is_prepared(directory)
    if damage == "manifest":
        (directory / "naiad_model.json").write_text("{")
    elif damage == "missing file":
        (directory / "config.json").unlink()
    else:
        (directory / "config.json").write_text("")
    assert not is_prepared(directory)


def test_a_folder_that_is_no_whole_model_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "notes").write_text("precious")
    with pytest.raises(BuildError, match="--replace"):
        prepare("gguf:/nowhere/m.gguf", tmp_path, name="mine")
    assert (tmp_path / "models" / "mine" / "notes").read_text() == "precious"


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    remains = tmp_path / "models" / ".m.making-abc"
    remains.mkdir(parents=True)
    with pytest.raises(SourceError, match="no file"):
        prepare("gguf:/nowhere/m.gguf", tmp_path)
    assert not remains.exists()


def test_a_second_run_waits_for_the_first(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "models").mkdir()
    waiting = threading.Event()

    def note(step: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
        if step.startswith("Waiting"):
            waiting.set()

    def run() -> None:
        with pytest.raises(SourceError):
            prepare("gguf:/nowhere/m.gguf", tmp_path, progress=note)

    second = threading.Thread(target=run)
    with (tmp_path / "models" / ".m.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second.start()
        assert waiting.wait(timeout=10)
        second.join(timeout=0.3)
        assert second.is_alive()
    second.join(timeout=10)
    assert not second.is_alive()


@pytest.mark.parametrize("name", ["default", "Upper", "a/b", "..", ""])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError, match="no model name"):
        prepare("gguf:/nowhere/m.gguf", tmp_path, name=name)


@pytest.mark.parametrize(
    ("files", "error", "named"),
    [
        ([], UnsupportedModelError, "it is empty"),
        (["a.gguf", "b.gguf"], SourceError, r"a\.gguf, b\.gguf"),
        (["openvino_model.xml"], SourceError, "convert_tokenizer"),
        (["model.safetensors"], UnsupportedModelError, "optimum-cli export openvino"),
    ],
)
def test_a_folder_that_cannot_be_used_says_what_to_do(
    tmp_path: Path, files: list[str], error: type[BuildError], named: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in files:
        (source / name).touch()
    with pytest.raises(error, match=named):
        prepare(f"dir:{source}", tmp_path / "artifacts")
    assert visible(tmp_path / "artifacts" / "models") == []


def test_the_default_link_moves_only_when_it_is_a_link(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        link_default(tmp_path / name)
    assert os.readlink(tmp_path / "default") == "two"
    (tmp_path / "default").unlink()
    (tmp_path / "default").mkdir()
    with pytest.raises(BuildError, match="not a symbolic link"):
        link_default(tmp_path / "one")


@pytest.mark.parametrize(
    ("ids", "text", "complaint"),
    [
        ((), "", "no token at all"),
        ((5, 500), "ok", "outside the vocabulary"),
        ((7,) * 12, "aaaaaaaaaaaa", "only repeats"),
        ((5, 6), "a\ufffd b", "not readable"),
        ((5, 6), " \n", "not readable"),
    ],
)
def test_nonsense_from_the_built_engine_is_refused(ids: tuple[int, ...], text: str, complaint: str) -> None:
    with pytest.raises(ConversionError, match=complaint):
        check_sample(Sample((1, 2), ids, text), vocab_size=100)


def test_an_answer_cut_inside_a_character_is_sensible() -> None:
    check_sample(Sample((1, 2), (5, 6), "Paris \ufffd"), vocab_size=100)


def test_a_failed_staging_leaves_no_folder(tmp_path: Path) -> None:
    def fail_halfway() -> None:
        with staging_directory(tmp_path, "m") as staging:
            (staging / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert list(tmp_path.iterdir()) == []


def test_publishing_replaces_only_when_told_to(tmp_path: Path) -> None:
    final = tmp_path / "m"
    for content, replace in (("one", False), ("two", True)):
        with staging_directory(tmp_path, "m") as staging:
            (staging / "file").write_text(content)
            publish(staging, final, replace=replace)
        assert (final / "file").read_text() == content
    with staging_directory(tmp_path, "m") as staging, pytest.raises(BuildError, match="exists already"):
        publish(staging, final)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_command_shows_a_manifest(tmp_path: Path) -> None:
    directory = whole_directory(tmp_path / "model")
    shown = CliRunner().invoke(app, ["show", str(directory), "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["name"] == "tiny"


def test_the_command_explains_a_bad_source(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["prepare", "nonsense", "--artifacts", str(tmp_path)])
    assert refused.exit_code == 1
    assert "hf:OWNER/NAME" in refused.output
    assert "Traceback" not in refused.output


def whole_directory(directory: Path) -> Path:
    """A directory with a manifest that fits its one file."""
    directory.mkdir()
    (directory / "config.json").write_text('{"vocab_size": 10}')
    record = {"size_bytes": 18, "sha256": sha256_of(directory / "config.json")}
    manifest = {
        "name": "tiny", "source": "gguf:/m", "pinned_source": "gguf:/m", "format": "f32", "vocab_size": 10,
        "context_length": 64, "files": {"config.json": record}, "tokenizer_sha256": "0" * 64,
        "tool_versions": {}, "created_utc": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    (directory / "naiad_model.json").write_text(json.dumps(manifest))
    return directory
