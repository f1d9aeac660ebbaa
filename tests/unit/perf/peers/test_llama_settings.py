"""One way to run llama.cpp's server, written for its wheel and for its program."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

from naiad_perf.peers.llama_settings import AS_FETCHED, LLAMA_KNOBS, LlamaSettings, knobs_for

MODEL = Path("/models/m.gguf")
ODD = LlamaSettings("bf16", "off", "f32", True, 128, "passive", 3)


def options(settings: LlamaSettings) -> dict[str, str]:
    """The program's options with their values; those without one have none."""
    arguments = settings.arguments(MODEL, 8, 200, 1234)
    found = {name: "" for name in arguments if name.startswith("--")}
    return found | {
        name: value for name, value in pairwise(arguments) if name in found and value not in found
    }


@pytest.mark.parametrize("settings", [LlamaSettings(threads=2), ODD])
def test_both_ways_say_the_same(settings: LlamaSettings) -> None:
    wheel, program = settings.parameters(MODEL, 8, 200), options(settings)
    assert wheel["model.path"] == program["--model"] == "/models/m.gguf"
    assert wheel["n_parallel"] == int(program["--parallel"]) == 8
    assert wheel["n_ctx"] == int(program["--ctx-size"]) == 1600, "of all slots together"
    assert wheel["cpuparams.n_threads"] == int(program["--threads"]) == settings.threads
    assert wheel["cpuparams_batch.n_threads"] == int(program["--threads-batch"]) == settings.threads
    assert wheel["cache_type_k"] == program["--cache-type-k"] == settings.cache
    assert wheel["cache_type_v"] == program["--cache-type-v"] == settings.cache
    assert wheel["n_ubatch"] == int(program["--ubatch-size"]) == settings.ubatch
    assert wheel["kv_unified"] is ("--kv-unified" in program) is not ("--no-kv-unified" in program)
    assert wheel["cont_batching"] is ("--cont-batching" in program) is True
    assert program["--port"] == "1234"


@pytest.mark.parametrize(("said", "wheel"), [("auto", "auto"), ("on", "enabled"), ("off", "disabled")])
def test_flash_attention_has_two_vocabularies(said: str, wheel: str) -> None:
    settings = LlamaSettings(flash_attention=said)
    assert settings.parameters(MODEL, 1, 1)["flash_attn_type"] == wheel
    assert options(settings)["--flash-attn"] == said


def test_passive_waiting_is_openmp_s_word_for_it() -> None:
    assert ODD.environment == {"OMP_WAIT_POLICY": "passive"}
    assert LlamaSettings().environment == {}


def test_every_knob_turns_something_and_begins_with_what_is_usual() -> None:
    usual = LlamaSettings()
    assert {field.name for field in fields(LlamaSettings)} - set(LLAMA_KNOBS) == {"threads"}
    for name, values in LLAMA_KNOBS.items():
        assert values[0] == getattr(usual, name)
        assert len({str(LlamaSettings(**{name: value})) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("form", "weights"), [("q8_0", ("q8_0", "bf16")), ("q4_1", ("q8_0", AS_FETCHED, "bf16"))]
)
def test_no_format_is_tried_twice(form: str, weights: tuple[str, ...]) -> None:
    assert knobs_for(form) == dict(LLAMA_KNOBS) | {"weights": weights}
