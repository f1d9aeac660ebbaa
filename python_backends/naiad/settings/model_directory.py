"""The prepared model directory: where it is, what it says about the model, and its manifest.

`naiad_build.prepare` writes the directory and its manifest; the models and the server read them through
`ModelDirectory`. These errors are for the operator who starts the server, so they name paths.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from naiad.contract.errors import InvalidArgument

__all__ = [
    "DEFAULT_MODEL_DIRECTORY",
    "MANIFEST_NAME",
    "MODEL_DIRECTORY_VARIABLE",
    "FileRecord",
    "ModelDirectory",
    "ModelManifest",
    "Quantization",
    "read_manifest",
    "repository_path",
    "resolve_model_directory",
]

MANIFEST_NAME = "naiad_model.json"
MODEL_DIRECTORY_VARIABLE = "NAIAD_MODEL_DIR"
DEFAULT_MODEL_DIRECTORY = ".artifacts/models/default"
_ADVICE = "run `make setup`, or `naiad build prepare` (naiad build prepare --help shows the sources)"


class FileRecord(BaseModel):
    """One published file: its size in bytes and its SHA-256 in lower-case hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Quantization(BaseModel):
    """How the weights of a prepared directory were brought into their format.

    Attributes:
        format: name of the format, as `naiad build quantize --format` takes it.
        settings: of the tool that made it.
        calibration_sha256: digest of the calibration text; None where none was needed.
        calibration_tokens: tokens of it that were run through the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = Field(min_length=1)
    settings: dict[str, str | float | bool | None]
    calibration_sha256: str | None = None
    calibration_tokens: int = Field(default=0, ge=0)


class ModelManifest(BaseModel):
    """`naiad_model.json`: what a prepared directory was made from, with what, and what is in it.

    Attributes:
        name: the directory's own name, for example ``smollm2-135m-instruct``.
        source: the source string it was prepared from, as asked for.
        pinned_source: the same with the revision or digest that was fetched.
        source_sha256: digest of the one source file, or None for a directory of files.
        format: weights format in words, for example ``openvino-ir q8_0 from gguf q4_1``.
        quantization: how the format was made; None for the weights as they were given.
        files: every published file but the manifest itself, by its name.
        tokenizer_sha256: digest of tokenizer.json; two models with the same one share token ids.
        chat_template_sha256: digest of the chat template's text; None when the model has none.
        tool_versions: distribution name -> version of what made it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(default=1, ge=1, le=1)
    name: str = Field(min_length=1)
    source: str = Field(min_length=1)
    pinned_source: str = Field(min_length=1)
    source_sha256: str | None = None
    format: str = Field(min_length=1)
    quantization: Quantization | None = None
    vocab_size: int = Field(gt=0)
    context_length: int = Field(gt=0)
    files: dict[str, FileRecord]
    tokenizer_sha256: str
    chat_template_sha256: str | None = None
    tool_versions: dict[str, str]
    created_utc: datetime


def read_manifest(directory: Path) -> ModelManifest:
    """Read `directory`'s manifest.

    Raises:
        InvalidArgument: it is absent, or was not written by this version of the build.
    """
    path = directory / MANIFEST_NAME
    try:
        return ModelManifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"{directory} has no readable {MANIFEST_NAME}; {_ADVICE}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InvalidArgument(
            f"{path} is damaged: {where}: {first['msg']}; prepare the model again"
        ) from error


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """What the serving side needs to know about a prepared model.

    Attributes:
        path: the directory, with symbolic links resolved, so that a later change of `default` mixes nothing.
        name: the manifest's name, or the folder's where there is no manifest (a plain checkpoint).
        vocab_size: token ids are in [0, vocab_size).
        context_length: tokens of prompt and answer together.
        eos_ids: ids that end an answer, the main one first; never empty.
        pad_id: id used to fill; None when the model names none.
        bos_id: id that starts a text; None when the model names none.
    """

    path: Path
    name: str
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]
    pad_id: int | None
    bos_id: int | None

    @classmethod
    def load(cls, path: Path) -> ModelDirectory:
        """Read config.json, generation_config.json (it wins where both speak) and, if present, the manifest.

        Raises:
            InvalidArgument: the directory or a needed figure is missing or impossible; says which.
        """
        path = path.resolve()
        config = _read_json(path / "config.json", required=True)
        text_config = config.get("text_config")
        if isinstance(text_config, dict):  # multi-modal checkpoints keep the language model's figures here
            config = {**config, **text_config}
        generation = _read_json(path / "generation_config.json", required=False)
        vocab_size = _positive(path, config, "vocab_size")
        ids = _Ids(
            path,
            {**config, **{key: value for key, value in generation.items() if value is not None}},
            vocab_size,
        )
        eos_ids = ids.many("eos_token_id")
        if not eos_ids:
            raise InvalidArgument(
                f"{path}: no eos_token_id in generation_config.json or config.json: no answer would end"
            )
        return cls(
            path=path,
            name=read_manifest(path).name if (path / MANIFEST_NAME).exists() else path.name,
            vocab_size=vocab_size,
            context_length=_positive(path, config, "max_position_embeddings"),
            eos_ids=eos_ids,
            pad_id=ids.one("pad_token_id"),
            bos_id=ids.one("bos_token_id"),
        )


def resolve_model_directory(
    value: str, model_repository: str | None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the prepared model directory that a model's parameter means; it exists.

    Args:
        value: the parameter's text: an absolute path, or one relative to the folder that holds the
            model repository.
        model_repository: Triton's ``args["model_repository"]``, which is the *model's own* folder,
            ``<root>/model_repository/<model>``; None outside Triton, where a relative path counts from the
            working directory.
        environment: ``NAIAD_MODEL_DIR`` in it wins over `value`.

    Raises:
        InvalidArgument: nothing is named, or what is named is not a directory; says what to do.
    """
    override = environment.get(MODEL_DIRECTORY_VARIABLE, "").strip()
    chosen = override or value.strip()
    if not chosen:
        raise InvalidArgument(
            f"no model directory is named: set the model's parameter or {MODEL_DIRECTORY_VARIABLE}"
        )
    # An override comes from a shell, so it is relative to where the server was started.
    path = repository_path(chosen, None if override else model_repository)
    if not path.is_dir():
        origin = f"{MODEL_DIRECTORY_VARIABLE}={chosen}" if override else f"`{chosen}`"
        raise InvalidArgument(f"no prepared model at {path} (from {origin}): {_ADVICE}")
    return path.resolve()


def repository_path(value: str, model_repository: str | None) -> Path:
    """Return the path that a model's parameter means; see `resolve_model_directory`."""
    root = Path.cwd() if model_repository is None else Path(model_repository).absolute().parent.parent
    return root / Path(value).expanduser()


@dataclass(frozen=True, slots=True)
class _Ids:
    """Token ids of a config, each checked to lie inside the vocabulary."""

    path: Path
    config: Mapping[str, Any]
    vocab_size: int

    def many(self, key: str) -> tuple[int, ...]:
        value = self.config.get(key)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        for index in listed:
            # bool is an int in Python, but `true` is no token id.
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < self.vocab_size:
                raise InvalidArgument(
                    f"{self.path}: {key} {index!r} is not a token id below {self.vocab_size}"
                )
        return tuple(dict.fromkeys(listed))

    def one(self, key: str) -> int | None:
        listed = self.many(key)
        return listed[0] if listed else None


def _positive(path: Path, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidArgument(f"{path / 'config.json'}: {key} must be a positive whole number, not {value!r}")
    return value


def _read_json(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if not required:
            return {}
        raise InvalidArgument(
            f"{path.parent} is no model directory: it has no {path.name}; {_ADVICE}"
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidArgument(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content
