"""A model's parameters: known keys only, typed values, and unfilled template variables."""

from __future__ import annotations

import pytest

from naiad.contract import MODELS, TENSORRT_LLM, ModelSpec, ParameterSpec
from naiad.contract.errors import InvalidArgument
from naiad.settings.parameters import Parameters

SPEC = ModelSpec(
    name="engine",
    summary="a model",
    inputs=(),
    outputs=(),
    parameters=(
        ParameterSpec("max_waiting_requests", "1024", "a bound"),
        ParameterSpec("kv_cache_precision", "f32", "a choice"),
        ParameterSpec("enable_chunked_context", "false", "a flag"),
        ParameterSpec("step_ms", "2.5", "a number"),
        ParameterSpec("kv_tokens", "", "optional"),
        ParameterSpec("tokenizer_dir", None, "has no default"),
    ),
)


def given(**values: str) -> Parameters:
    return Parameters.of(SPEC, values)


def test_what_is_not_given_has_the_contracts_default():
    parameters = given()
    assert parameters.integer("max_waiting_requests") == 1024
    assert parameters.text("kv_cache_precision") == "f32"
    assert parameters.flag("enable_chunked_context") is False
    assert parameters.number("step_ms") == 2.5
    assert parameters.optional_integer("kv_tokens") is None
    assert parameters.text("tokenizer_dir") == ""


@pytest.mark.parametrize("unset", ["", "${max_waiting_requests}", "${anything else}"])
def test_an_empty_value_or_an_unfilled_variable_is_the_default(unset):
    assert given(max_waiting_requests=unset).integer("max_waiting_requests") == 1024


def test_a_value_that_only_holds_a_variable_is_kept_and_refused_where_it_is_read():
    with pytest.raises(InvalidArgument, match="max_waiting_requests must be a whole number"):
        given(max_waiting_requests="1${x}").integer("max_waiting_requests")


def test_what_is_given_wins_over_the_default():
    parameters = given(max_waiting_requests="7", tokenizer_dir="/models/x", kv_tokens="64")
    assert parameters.integer("max_waiting_requests") == 7
    assert parameters.text("tokenizer_dir") == "/models/x"
    assert parameters.optional_integer("kv_tokens", minimum=64) == 64


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("max_waiting_request", "max_waiting_requests"),
        ("enable_chunked_contexts", "enable_chunked_context"),
        ("kvcache_precision", "kv_cache_precision"),
    ],
)
def test_a_misspelt_key_is_refused_and_the_meant_one_named(misspelt, meant):
    with pytest.raises(InvalidArgument) as refusal:
        given(**{misspelt: "1"})
    assert refusal.value.message == f"model engine has no parameter {misspelt!r}; did you mean {meant}?"


def test_an_unknown_key_like_no_other_is_refused_without_a_guess():
    with pytest.raises(InvalidArgument) as refusal:
        given(zzz="")
    assert refusal.value.message == "model engine has no parameter 'zzz'"


@pytest.mark.parametrize("value", ["many", "1.5", "0x10", "1e3", "None"])
def test_a_whole_number_that_is_none_is_refused_by_key(value):
    with pytest.raises(
        InvalidArgument, match=r"model engine: parameter max_waiting_requests must be a whole"
    ):
        given(max_waiting_requests=value).integer("max_waiting_requests")


def test_a_whole_number_has_a_lower_bound():
    assert given(max_waiting_requests="1").integer("max_waiting_requests", minimum=1) == 1
    with pytest.raises(InvalidArgument, match="max_waiting_requests must be at least 1, not 0"):
        given(max_waiting_requests="0").integer("max_waiting_requests", minimum=1)
    with pytest.raises(InvalidArgument, match="at least 0, not -1"):
        given(max_waiting_requests="-1").integer("max_waiting_requests")
    with pytest.raises(InvalidArgument, match="kv_tokens must be at least 64, not 63"):
        given(kv_tokens="63").optional_integer("kv_tokens", minimum=64)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.1", "1,5", "fast"])
def test_a_number_is_finite_and_not_negative(value):
    with pytest.raises(InvalidArgument, match="parameter step_ms must be a"):
        given(step_ms=value).number("step_ms")


@pytest.mark.parametrize(("value", "number"), [("0", 0.0), ("1e-3", 0.001), ("20000", 20000.0)])
def test_a_number_is_read_as_python_writes_it(value, number):
    assert given(step_ms=value).number("step_ms") == number


@pytest.mark.parametrize(
    ("value", "flag"),
    [(word, True) for word in ("true", "True", "TRUE", "1", "t", "y", "yes")]
    + [(word, False) for word in ("false", "False", "0", "f", "n", "no", "NO")],
)
def test_flags_take_every_spelling_of_tensorrt_llms_models(value, flag):
    assert given(enable_chunked_context=value).flag("enable_chunked_context") is flag


@pytest.mark.parametrize("value", ["2", "on", "truee", " "])
def test_a_flag_that_is_none_is_refused_by_key(value):
    with pytest.raises(InvalidArgument, match="enable_chunked_context must be true or false, not"):
        given(enable_chunked_context=value).flag("enable_chunked_context")


def test_a_choice_outside_the_set_names_the_set():
    assert given(kv_cache_precision="u8").choice("kv_cache_precision", "f32", "u8") == "u8"
    with pytest.raises(InvalidArgument, match="kv_cache_precision must be one of f32, f16, u8, not 'F32'"):
        given(kv_cache_precision="F32").choice("kv_cache_precision", "f32", "f16", "u8")


def test_milliseconds_become_seconds_and_are_at_least_one():
    assert given(max_waiting_requests="250").milliseconds("max_waiting_requests") == 0.25
    with pytest.raises(InvalidArgument, match="at least 1, not 0"):
        given(max_waiting_requests="0").milliseconds("max_waiting_requests")


def test_asking_for_a_parameter_that_the_contract_does_not_have_is_a_bug():
    with pytest.raises(KeyError):
        given().text("no_such_key")


@pytest.mark.parametrize("spec", MODELS, ids=[spec.name for spec in MODELS])
def test_a_template_with_nothing_filled_in_loads_with_all_defaults(spec: ModelSpec):
    unfilled = {parameter.name: f"${{{parameter.name}}}" for parameter in spec.parameters}
    assert Parameters.of(spec, unfilled) == Parameters.of(spec, {})


def test_the_removed_worker_path_is_refused():
    """NVIDIA's backend refuses it too, since the parameter was renamed."""
    with pytest.raises(InvalidArgument, match="executor_worker_path"):
        Parameters.of(TENSORRT_LLM, {"worker_path": "/opt/worker"})
