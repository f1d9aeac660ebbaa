"""TensorRT-LLM 1.2.1's names and types (`trtllm_schema.json`), and the check of what is set against them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from naiad.contract.errors import InvalidArgument
from naiad_build.tensorrt_llm.types import explain_mismatch

__all__ = ["check_build_flags", "check_llm_args", "check_parameters", "schema"]

Scalar = str | int | float | bool
_UPSTREAM_NAMES = {"tensorrt_llm": "triton_tensorrt_llm"}
_LLM_CLASSES = ("BaseLlmArgs", "TorchLlmArgs")


@cache
def schema() -> dict[str, Any]:
    """Return the schema: tensors and parameters of NVIDIA's models, build flags, LLM API fields."""
    text = files(__package__).joinpath("trtllm_schema.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def check_build_flags(flags: Mapping[str, Scalar]) -> list[str]:
    """Check flags of `trtllm-build`, and return them as words of its command line.

    Args:
        flags: name without the dashes -> value; True for one that takes none.

    Raises:
        InvalidArgument: a flag is unknown (the nearest is named), deprecated, or its value is wrong.
    """
    known = {each["flag"].removeprefix("--"): each for each in schema()["trtllm_build_flags"]}
    words: list[str] = []
    for name, value in flags.items():
        entry = _entry(known, name, "trtllm-build has no flag", "--")
        if entry["type"] == "flag":
            if not isinstance(value, bool):
                raise InvalidArgument(f"trtllm-build --{name} takes no value: true or false, not {value!r}")
            words += [f"--{name}"] if value else []
            continue
        kind = ",".join(entry["values"]) if "values" in entry else entry["type"].replace("/", ",")
        wrong = explain_mismatch(kind, value)
        if wrong:
            raise InvalidArgument(f"trtllm-build --{name} {wrong}, not {value!r}")
        words += [f"--{name}", str(value)]
    return words


def check_llm_args(settings: Mapping[str, Any]) -> None:
    """Check settings of `tensorrt_llm.LLM` on the PyTorch backend, nested ones included.

    Raises:
        InvalidArgument: a field is unknown (the nearest is named), deprecated, or its value is wrong.
    """
    _check_fields(settings, _fields(*_LLM_CLASSES), "LLM")


def check_parameters(model: str, parameters: Mapping[str, str]) -> None:
    """Check values of parameters in a `config.pbtxt`; names that upstream does not have are left to others.

    Raises:
        InvalidArgument: the value of one is wrong.
    """
    known = schema()[_UPSTREAM_NAMES.get(model, model)].get("parameters", {})
    for name, text in parameters.items():
        if name not in known or not text:
            continue
        allowed = known[name].get("values")
        kind = ",".join(map(str, allowed)) if isinstance(allowed, list) else _parameter_kind(known[name])
        wrong = explain_mismatch(kind, _typed(text, kind))
        if wrong:
            raise InvalidArgument(f"{model}: parameter {name} {wrong}, not {text!r}")


def _parameter_kind(entry: Mapping[str, Any]) -> str:
    kind, allowed = str(entry["type"]), str(entry.get("values", ""))
    return f"{kind} 0..1" if kind == "float" and allowed.startswith("0..1") else kind


def _typed(text: str, kind: str) -> Any:
    """Return a parameter's text as what it stands for; as it is where it stands for nothing of that kind."""
    if kind == "bool":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        return int(text) if kind.startswith(("int", "uint", "size_t")) else float(text)
    except ValueError:
        return text


def _check_fields(settings: Mapping[str, Any], known: Mapping[str, Any], owner: str) -> None:
    for name, value in settings.items():
        entry = _entry(known, str(name), f"{owner} has no field", "")
        place = f"{owner}.{name}"
        if isinstance(value, Mapping) and (nested := _class_of(entry["type"], value)):
            _check_fields(value, _fields(*nested), place)
            continue
        wrong = explain_mismatch(entry["type"], value)
        if wrong:
            raise InvalidArgument(f"{place} {wrong}, not {value!r}")


def _entry(known: Mapping[str, Any], name: str, unknown: str, dashes: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] | None = known.get(name)
    if entry is None:
        raise InvalidArgument(f"{unknown} {dashes}{name}{_nearest(name, known, dashes)}")
    if "deprecated" in entry or entry.get("status") == "deprecated":
        instead = f": {entry['deprecated']}" if "deprecated" in entry else ""
        raise InvalidArgument(f"{dashes}{name} is deprecated{instead}")
    return entry


def _nearest(name: str, known: Iterable[str], dashes: str) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {dashes}{near[0]}?" if near else ""


def _fields(*classes: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in classes:
        found |= schema()["llm_args"][name]
    return found


def _class_of(kind: str, value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the classes in the schema whose fields a nested mapping may have; none where it says nothing."""
    if kind == "SpeculativeConfig":
        return _decoding_classes(value)
    names = [name.strip() for name in kind.split(",")]
    return tuple(name for name in names if name in schema()["llm_args"])


def _decoding_classes(value: Mapping[str, Any]) -> tuple[str, ...]:
    chosen = str(value.get("decoding_type", ""))
    classes = {
        name: fields
        for name, fields in schema()["llm_args"].items()
        if "decoding_type" in fields
        and chosen in str(fields["decoding_type"]["type"]).replace("/", " ").split()
    }
    if not classes:
        raise InvalidArgument(f"LLM.speculative_config.decoding_type {chosen!r} is none that the schema has")
    return ("DecodingBaseConfig", *classes)
