"""From a model source to a published model directory: fetch, convert, try out, describe, rename."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from naiad.contract.errors import InvalidArgument
from naiad.settings.model_directory import (
    MANIFEST_NAME,
    FileRecord,
    ModelDirectory,
    ModelManifest,
    Quantization,
    read_manifest,
)
from naiad_build.disk import ensure_free_space, publish, sha256_of, staging_directory
from naiad_build.errors import BuildError, SourceError, UnsupportedModelError
from naiad_build.gguf_metadata import read_gguf_metadata
from naiad_build.gguf_tokenizer import write_tokenizer_files
from naiad_build.openvino_model import IR_FILES, TOKENIZER_IR_FILES, convert_gguf, export_checkpoint, sample
from naiad_build.progress import Progress, silent
from naiad_build.quantize.formats import FORMATS, FULL, OpenVinoFormat
from naiad_build.quantize.openvino_quantizer import NNCF_VERSION, Calibration, planned, quantize_openvino
from naiad_build.sources import FetchedModel, fetch_source, parse_source

__all__ = ["DEFAULT_LINK", "is_prepared", "link_default", "prepare"]

DEFAULT_LINK = "default"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
# Weights rewritten with up to twice the bits, their copy inside the converter, and tokenizer files.
_SPACE_FACTOR = 5
_FEW_BITS = re.compile(r'<data element_type="([iu][48]|nf4|f8e\dm\d)"')
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json")
_OPTIONAL_FILES = ("generation_config.json", "chat_template.jinja", "special_tokens_map.json")
_TOOLS = ("naiad", "openvino", "openvino-genai", "openvino-tokenizers", "tokenizers", "gguf")


def prepare(
    source: str,
    artifacts: Path,
    *,
    name: str | None = None,
    replace: bool = False,
    make_default: bool = False,
    weights: OpenVinoFormat | None = None,
    calibration: Calibration | None = None,
    progress: Progress = silent,
) -> Path:
    """Prepare the model `source` as ``<artifacts>/models/<name>`` and return that folder.

    A model already prepared from the same source is returned at once. The folder appears complete, by one
    rename, after the built engine has answered a probe. ``<artifacts>/models/default`` is pointed at it with
    `make_default`, or when there is no default yet.

    Args:
        source: see `naiad_build.sources`.
        artifacts: where models and downloads are kept; made if absent.
        name: folder name in lower case; by default from the source, and the format if one is given.
        replace: build again, and put the result in the place of what is there.
        make_default: point `default` here even when it points elsewhere.
        weights: format to bring the weights into; by default they stay what they are, as far as the engine
            reads them exactly. The model with 16-bit weights is kept beside it, as ``<name>-fp16``.
        calibration: what that format is calibrated on; by default the packaged text.
        progress: called as the steps begin and advance.

    Raises:
        BuildError: or one of its kinds; nothing half-made stays behind.
    """
    parsed = parse_source(source)
    if name is None:
        name = parsed.model_name if weights is None else f"{parsed.model_name}-{weights.name}"
    if not _NAME.fullmatch(name) or name == DEFAULT_LINK:
        raise BuildError(
            f"`{name}` is no model name: lower-case letters, digits, `.`, `_`, `-`, and not `{DEFAULT_LINK}`"
        )
    root = artifacts.absolute()
    models = root / "models"
    final = models / name
    wanted = None if weights is None else planned(weights, calibration or Calibration())
    base = None
    if weights is not None and weights.name != FULL and (replace or not is_prepared(final)):
        base = prepare(source, artifacts, weights=FORMATS[FULL], progress=progress)
    models.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(models, name, progress):
        if not replace and _already_there(final, str(parsed), wanted):
            progress("Already prepared")
        else:
            _remove_remains(models, name)
            with staging_directory(models, name) as staging:
                if base is not None and weights is not None:
                    _requantize(base, staging, name, weights, calibration or Calibration(), root, progress)
                else:
                    fetched = fetch_source(parsed, root / "sources", progress)
                    _build(fetched, str(parsed), staging, name, weights, progress)
                progress("Publishing")
                publish(staging, final, replace=replace)
        if make_default or (weights is None and not (models / DEFAULT_LINK).exists()):
            link_default(final)
    return final


def is_prepared(directory: Path) -> bool:
    """Whether `directory` is whole: its manifest reads and every file has its size. Takes milliseconds."""
    try:
        manifest = read_manifest(directory)
        return all(
            (directory / name).stat().st_size == record.size_bytes for name, record in manifest.files.items()
        )
    except (InvalidArgument, OSError):
        return False


def link_default(directory: Path) -> None:
    """Point the `default` link beside `directory` at it, in one step.

    Raises:
        BuildError: `default` is a real file or folder there, which is left alone.
    """
    link = directory.parent / DEFAULT_LINK
    if link.exists() and not link.is_symlink():
        raise BuildError(f"{link} is not a symbolic link: move it away, then prepare again")
    fresh = directory.parent / f".{DEFAULT_LINK}.{directory.name}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(directory.name)
    fresh.replace(link)


def _already_there(final: Path, source: str, wanted: Quantization | None) -> bool:
    if not final.exists():
        return False
    if not is_prepared(final):
        raise BuildError(
            f"{final} exists but is not a whole prepared model: prepare with --replace, or choose --name"
        )
    manifest = read_manifest(final)
    if source not in (manifest.source, manifest.pinned_source):
        raise BuildError(
            f"{final} was prepared from another source ({manifest.source}): choose another --name or "
            "--replace it"
        )
    there = manifest.quantization
    if there is not None:
        there = there.model_copy(update={"calibration_tokens": 0})
    if wanted != there:
        raise BuildError(
            f"{final} holds {manifest.format} with other settings: choose another --name or --replace it"
        )
    return True


def _build(
    fetched: FetchedModel,
    source: str,
    staging: Path,
    name: str,
    weights: OpenVinoFormat | None,
    progress: Progress,
) -> None:
    size = _weights_size(fetched.path)
    ensure_free_space(staging, _SPACE_FACTOR * size, f"Preparing {name}")
    weights_format = _convert(fetched.path, staging, full=weights is not None, progress=progress)
    quantization = None if weights is None else planned(weights, Calibration())
    _try(staging, progress)
    progress("Writing the manifest")
    manifest = _describe(fetched, source, staging, name, weights_format, quantization)
    _write_manifest(manifest, staging)


def _requantize(
    base: Path,
    staging: Path,
    name: str,
    weights: OpenVinoFormat,
    calibration: Calibration,
    artifacts: Path,
    progress: Progress,
) -> None:
    """Fill `staging` with `base` in another format."""
    ensure_free_space(staging, 2 * (base / IR_FILES[1]).stat().st_size, f"Preparing {name}")
    quantization = quantize_openvino(base, staging, weights, calibration, artifacts, progress)
    origin = read_manifest(base)
    for file in origin.files:
        if file not in IR_FILES:
            shutil.copyfile(base / file, staging / file)
    _try(staging, progress)
    progress("Writing the manifest")
    manifest = origin.model_copy(
        update={
            "name": name,
            "format": f"openvino-ir {weights.name} from {origin.format.rpartition(' from ')[2]}",
            "quantization": quantization,
            "files": _files(staging),
            "tool_versions": {**_all_tool_versions(), "nncf": NNCF_VERSION},
            "created_utc": _now(),
        }
    )
    _write_manifest(manifest, staging)


def _try(staging: Path, progress: Progress) -> None:
    progress("Trying the built engine")
    sample(staging, ModelDirectory.load(staging).vocab_size)


def _write_manifest(manifest: ModelManifest, staging: Path) -> None:
    (staging / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _convert(path: Path, staging: Path, *, full: bool, progress: Progress) -> str:
    """Fill `staging` from the GGUF file or the folder at `path`; return the weights' format in words."""
    if path.is_file():
        return _convert_gguf(path, staging, full=full, progress=progress)
    if (path / IR_FILES[0]).is_file():
        if full:
            _refuse_few_bits(path / IR_FILES[0])
        progress("Copying the OpenVINO IR")
        _copy(path, staging, (*IR_FILES, *TOKENIZER_IR_FILES, *_TOKENIZER_FILES), _OPTIONAL_FILES)
        return "openvino-ir as given"
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return _convert_gguf(ggufs[0], staging, full=full, progress=progress)
    if ggufs:
        listed = ", ".join(found.name for found in ggufs)
        raise SourceError(f"{path} holds {len(ggufs)} GGUF files ({listed}): name one, as gguf:{ggufs[0]}")
    if any(path.glob("*.safetensors")):
        progress("Exporting with optimum-intel")
        export_checkpoint(path, staging, weights="fp16" if full else "int8")
        _copy(path, staging, (), _OPTIONAL_FILES)
        return f"openvino-ir {'fp16' if full else 'int8 weights'} from safetensors"
    raise UnsupportedModelError(
        f"{path} holds no {IR_FILES[0]}, no .gguf and no .safetensors: "
        f"{', '.join(sorted(entry.name for entry in path.iterdir())[:20]) or 'it is empty'}"
    )


def _refuse_few_bits(ir: Path) -> None:
    found = _FEW_BITS.search(ir.read_text(encoding="utf-8"))
    if found:
        raise UnsupportedModelError(
            f"{ir} has matrices in {found.group(1)} already, and formats are made from 16 bits or more: "
            "give the original weights"
        )


def _convert_gguf(path: Path, staging: Path, *, full: bool, progress: Progress) -> str:
    progress("Reading the GGUF header")
    metadata = read_gguf_metadata(path)
    write_tokenizer_files(metadata, staging)
    progress("Converting to OpenVINO IR")
    rewritten = convert_gguf(path, staging, form="f16" if full else None)
    found = (metadata.quantization or "mixed").lower()
    return f"openvino-ir {rewritten} from gguf {found}" if rewritten else f"openvino-ir {found} from gguf"


def _copy(origin: Path, staging: Path, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    missing = [name for name in required if not (origin / name).is_file()]
    if missing:
        raise SourceError(
            f"{origin} lacks {', '.join(missing)}. The .json files come from the original checkpoint, the "
            "OpenVINO tokenizer files from openvino-tokenizers: "
            f"convert_tokenizer {origin} --with-detokenizer -o {origin}"
        )
    for name in (*required, *(name for name in optional if (origin / name).is_file())):
        if not (staging / name).exists():
            shutil.copyfile(origin / name, staging / name)


def _describe(
    fetched: FetchedModel,
    source: str,
    staging: Path,
    name: str,
    weights_format: str,
    quantization: Quantization | None,
) -> ModelManifest:
    model = ModelDirectory.load(staging)
    files = _files(staging)
    return ModelManifest(
        name=name,
        source=source,
        pinned_source=fetched.source,
        source_sha256=fetched.sha256,
        format=weights_format,
        quantization=quantization,
        vocab_size=model.vocab_size,
        context_length=model.context_length,
        files=files,
        tokenizer_sha256=files["tokenizer.json"].sha256,
        chat_template_sha256=_template_sha256(staging),
        tool_versions=_all_tool_versions(),
        created_utc=_now(),
    )


def _files(staging: Path) -> dict[str, FileRecord]:
    return {
        path.name: FileRecord(size_bytes=path.stat().st_size, sha256=sha256_of(path))
        for path in sorted(staging.iterdir())
        if path.is_file()
    }


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def _template_sha256(directory: Path) -> str | None:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return sha256_of(path)
    template = json.loads((directory / "tokenizer_config.json").read_bytes()).get("chat_template")
    return hashlib.sha256(template.encode()).hexdigest() if isinstance(template, str) else None


def _all_tool_versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for tool in _TOOLS:
        try:
            found[tool] = version(tool)
        except PackageNotFoundError:
            found[tool] = "not installed"
    return found


def _weights_size(path: Path) -> int:
    files = [path] if path.is_file() else [entry for entry in path.iterdir() if entry.is_file()]
    return sum(entry.stat().st_size for entry in files)


def _remove_remains(models: Path, name: str) -> None:
    """Delete what a killed run left; the lock is held, so no live run owns it."""
    for remains in models.glob(f".{name}.making-*"):
        shutil.rmtree(remains, ignore_errors=True)


@contextmanager
def _one_at_a_time(models: Path, name: str, progress: Progress) -> Iterator[None]:
    with (models / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("Waiting for another run that prepares this model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
