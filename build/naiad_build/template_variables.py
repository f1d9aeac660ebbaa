"""NVIDIA's template variables, `name:value` as `fill_template.py` takes them, as changes to a profile."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from naiad.contract import MODELS, ModelSpec
from naiad.contract.errors import InvalidArgument
from naiad_build.profile import Profile

__all__ = ["parse_variables", "with_variables"]

# Variables whose name is not that of the one thing they set.
_SETTINGS = {
    "triton_backend": "backend",
    "triton_max_batch_size": "max_batch_size",
    "decoupled_mode": "decoupled",
    "max_queue_delay_microseconds": "max_queue_delay_microseconds",
    "max_queue_size": "max_queue_size",
}
_INSTANCES = {
    "preprocessing_instance_count": "preprocessing",
    "postprocessing_instance_count": "postprocessing",
    "bls_instance_count": "tensorrt_llm_bls",
}
_PARAMETERS = {
    "engine_dir": "gpt_model_path",
    "encoder_engine_dir": "encoder_model_path",
    "batching_strategy": "gpt_model_type",
}
_NEVER_VARIABLES = frozenset({*_PARAMETERS.values(), "FORCE_CPU_ONLY_INPUT_TENSORS", "executor_worker_path"})


def parse_variables(text: str) -> dict[str, str]:
    """Read `name:value,name:value`; a comma or colon inside a value is written with a backslash before it.

    Raises:
        InvalidArgument: an entry has no colon, or a name stands twice.
    """
    found: dict[str, str] = {}
    for entry in _split(text, ","):
        if not entry:
            continue
        name, *values = _split(entry, ":", most=1)
        if not values:
            raise InvalidArgument(f"{entry!r} is no `name:value`")
        name = name.strip()
        if name in found:
            raise InvalidArgument(f"template variable {name} is given twice")
        found[name] = values[0].replace("\\,", ",").replace("\\:", ":")
    return found


def with_variables(profile: Profile, variables: Mapping[str, str]) -> Profile:
    """Return a profile with template variables filled in.

    Raises:
        InvalidArgument: a variable is unknown (the nearest is named) or its value is wrong.
    """
    settings: dict[str, Any] = profile.model_dump()
    for name, value in variables.items():
        _apply(settings, name, value)
    try:
        return Profile.model_validate(settings)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        said = str(fault["msg"]).removeprefix("Value error, ")
        raise InvalidArgument(f"template variables: {place}: {said}, not {fault['input']!r}") from None


def _apply(settings: dict[str, Any], name: str, value: str) -> None:
    if name in _SETTINGS:
        settings[_SETTINGS[name]] = value
    elif name in _INSTANCES:
        settings["instances"][_INSTANCES[name]] = value
    elif name in _datatype_variables():
        settings["datatypes"][name] = value
    else:
        models = _models_with(_PARAMETERS.get(name, name)) if name not in _NEVER_VARIABLES else []
        if not models:
            raise InvalidArgument(f"there is no template variable {name!r}{_hint(name)}")
        for spec in models:
            settings["parameters"].setdefault(spec.name, {})[_PARAMETERS.get(name, name)] = value


def _models_with(parameter: str) -> list[ModelSpec]:
    return [
        spec
        for spec in MODELS
        if any(
            each.name == parameter and (not each.extension or parameter == "tokenizer_dir")
            for each in spec.parameters
        )
    ]


def _datatype_variables() -> set[str]:
    return {
        tensor.variable
        for spec in MODELS
        for tensor in (*spec.inputs, *spec.outputs)
        if tensor.variable is not None
    }


def _hint(name: str) -> str:
    names = {
        each.name for spec in MODELS for each in spec.parameters if not each.extension
    } - _NEVER_VARIABLES
    known = [*_SETTINGS, *_INSTANCES, *_PARAMETERS, *_datatype_variables(), *sorted(names)]
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    """Split at separators that no backslash precedes."""
    parts, start, index = [], 0, 0
    while index < len(text) and most != 0:
        if text[index] == "\\":
            index += 2
            continue
        if text[index] == separator:
            parts.append(text[start:index])
            start, most = index + 1, most - 1
        index += 1
    return [*parts, text[start:]]
