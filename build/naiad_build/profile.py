"""Deployment profiles: one YAML file each, from which every model's configuration is rendered."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from naiad.contract import MODELS, DataType
from naiad.contract.errors import InvalidArgument
from naiad.settings.parameters import Parameters
from naiad_build.plan.machines import GPUS
from naiad_build.plan.precisions import KV_BYTES, PRECISIONS
from naiad_build.tensorrt_llm.schema import check_build_flags, check_llm_args, check_parameters

__all__ = [
    "PROFILES_FOLDER",
    "EngineBuild",
    "Instances",
    "Machine",
    "Profile",
    "known_profiles",
    "load_profile",
    "profile_path",
]

PROFILES_FOLDER = Path(__file__).resolve().parents[1] / "profiles"


class Instances(BaseModel):
    """Processes a model runs in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preprocessing: int = Field(default=1, ge=1)
    postprocessing: int = Field(default=1, ge=1)
    tensorrt_llm_bls: int = Field(default=1, ge=1)


class Machine(BaseModel):
    """The GPUs of one server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str
    count: int = Field(default=1, ge=1, le=64)

    @field_validator("gpu")
    @classmethod
    def _known(cls, value: str) -> str:
        return _one_of(value, GPUS)


class EngineBuild(BaseModel):
    """What a TensorRT-LLM engine is built for.

    Attributes:
        precision: of the layers' matrices, in TensorRT-LLM's names (`qformat`).
        kv_precision: of the KV cache.
        max_batch_size: sequences at once.
        max_input_len: tokens of a prompt.
        max_seq_len: tokens of prompt and answer together.
        max_num_tokens: tokens of one step.
        tensor_parallel: parts every matrix is cut into; by default as many as the GPUs and the model allow.
        flags: more of `trtllm-build`'s own, without the dashes.
        llm_args: more of `tensorrt_llm.LLM`'s own, for profiles of the LLM API.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    precision: str
    kv_precision: str = "float16"
    max_batch_size: int = Field(ge=1)
    max_input_len: int = Field(ge=1)
    max_seq_len: int = Field(ge=2)
    max_num_tokens: int = Field(default=8192, ge=1)
    tensor_parallel: int | None = Field(default=None, ge=1)
    flags: dict[str, bool | int | float | str] = {}
    llm_args: dict[str, Any] = {}

    @field_validator("precision")
    @classmethod
    def _known_precision(cls, value: str) -> str:
        return _one_of(value, PRECISIONS)

    @field_validator("kv_precision")
    @classmethod
    def _known_kv_precision(cls, value: str) -> str:
        return _one_of(value, KV_BYTES)

    @field_validator("flags")
    @classmethod
    def _known_flags(cls, value: dict[str, bool | int | float | str]) -> dict[str, bool | int | float | str]:
        own = [name for name in value if name in cls.model_fields]
        if own:
            raise ValueError(f"{own[0]} is a setting beside `flags`, not one of them")
        with _as_value_error():
            check_build_flags(value)
        return value

    @field_validator("llm_args")
    @classmethod
    def _known_llm_args(cls, value: dict[str, Any]) -> dict[str, Any]:
        with _as_value_error():
            check_llm_args(value)
        return value

    @model_validator(mode="after")
    def _room_for_an_answer(self) -> EngineBuild:
        if self.max_seq_len <= self.max_input_len:
            raise ValueError(
                f"max_seq_len is prompt and answer together, so it must be above max_input_len "
                f"{self.max_input_len}, not {self.max_seq_len}"
            )
        return self


class Profile(BaseModel):
    """How the models of one deployment differ from another's.

    Attributes:
        name: file name without its ending; names `configs/<name>.pbtxt`.
        summary: one line.
        decoupled: many responses a request (streaming), or exactly one.
        backend: of `tensorrt_llm`: Naiad's own Python engines, or NVIDIA's C++ `tensorrtllm`.
        max_batch_size: of every model.
        model_directory: prepared model; relative paths start at the folder that holds the model repository.
        engine_directory: TensorRT-LLM's engine, where that is not in the prepared model.
        max_queue_delay_microseconds: how long the engine's and tokenizers' batchers wait for more requests.
        max_queue_size: of Triton's own queue in front of engine and tokenizers; 0 is unlimited.
        instances: processes of the stateless models.
        hourly_price_usd: of the machine this profile is meant for, all its GPUs together.
        machine: its GPUs; none for an engine on the CPU.
        engine: what the engine is built for; stated with `machine`.
        datatypes: template variable -> dtype, for tensors whose dtype a variable chooses (`logits_datatype`).
        parameters: model name -> parameter -> value, over the contract's defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str
    decoupled: bool
    backend: Literal["python", "tensorrtllm"] = "python"
    max_batch_size: int = Field(default=64, ge=1)
    model_directory: str
    engine_directory: str | None = None
    max_queue_delay_microseconds: int = Field(default=0, ge=0)
    max_queue_size: int = Field(default=0, ge=0)
    instances: Instances = Instances()
    hourly_price_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    machine: Machine | None = None
    engine: EngineBuild | None = None
    datatypes: dict[str, str] = {}
    parameters: dict[str, dict[str, str]] = {}

    @field_validator("datatypes")
    @classmethod
    def _known_datatypes(cls, value: dict[str, str]) -> dict[str, str]:
        for dtype in value.values():
            _one_of(dtype, [each.value for each in DataType])
        return value

    @field_validator("parameters", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Write YAML scalars as Triton's string values."""
        if not isinstance(value, dict):
            return value
        return {
            model: {key: _text(scalar) for key, scalar in entries.items()}
            if isinstance(entries, dict)
            else entries
            for model, entries in value.items()
        }

    @field_validator("parameters")
    @classmethod
    def _known(cls, value: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        specs = {spec.name: spec for spec in MODELS}
        for model, entries in value.items():
            if model not in specs:
                raise ValueError(f"no model {model!r}; models are {', '.join(specs)}")
            with _as_value_error():
                Parameters.of(specs[model], entries)
                check_parameters(model, entries)
        return value


@contextmanager
def _as_value_error() -> Iterator[None]:
    try:
        yield
    except InvalidArgument as error:
        raise ValueError(error.message) from None


def _one_of(value: str, known: Collection[str]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return value


def _text(scalar: object) -> object:
    if isinstance(scalar, bool):
        return str(scalar).lower()
    return str(scalar) if isinstance(scalar, int | float) else scalar


def profile_path(name: str) -> Path:
    """Return where a profile of ours stands."""
    return PROFILES_FOLDER / f"{name}.yaml"


def known_profiles() -> list[str]:
    """Return the names of our profiles."""
    return sorted(path.stem for path in PROFILES_FOLDER.glob("*.yaml"))


def load_profile(path: Path) -> Profile:
    """Read one profile.

    Raises:
        InvalidArgument: the file is missing, is no YAML mapping, or holds a wrong or unknown setting.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml"))) or "none"
        raise InvalidArgument(f"there is no profile {path.stem}; known are: {known}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path.name} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise InvalidArgument(f"{path.name} must be a mapping of settings")
    try:
        return Profile(name=path.stem, **content)
    except (ValidationError, TypeError) as error:
        raise InvalidArgument(f"profile {path.name}: {_first(error)}") from None


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
