"""The ensemble's steps fit the models they call: Triton would refuse the load otherwise."""

from __future__ import annotations

from naiad.contract import ENSEMBLE, MODELS, EnsembleStep, TensorSpec

CALLED = {spec.name: spec for spec in MODELS}


def wires(step: EnsembleStep) -> list[tuple[TensorSpec, str]]:
    spec = CALLED[step.model]
    return [(spec.input(name), outer) for name, outer in step.inputs.items()]


def test_every_required_input_of_a_called_model_is_wired():
    for step in ENSEMBLE.steps:
        required = {tensor.name for tensor in CALLED[step.model].inputs if not tensor.optional}
        assert required <= step.inputs.keys()


def test_every_wire_starts_at_an_input_or_an_earlier_step():
    known = {tensor.name for tensor in ENSEMBLE.inputs}
    for step in ENSEMBLE.steps:
        assert set(step.inputs.values()) <= known
        assert not set(step.outputs.values()) & known, "written twice"
        known |= set(step.outputs.values())
    assert {tensor.name for tensor in ENSEMBLE.outputs} <= known


def test_both_ends_of_a_wire_have_the_same_dtype():
    dtypes = {tensor.name: tensor.dtype for tensor in ENSEMBLE.inputs}
    for step in ENSEMBLE.steps:
        for tensor, outer in wires(step):
            assert dtypes[outer] is tensor.dtype, (step.model, tensor.name)
        for name, outer in step.outputs.items():
            dtypes[outer] = CALLED[step.model].output(name).dtype
    for tensor in ENSEMBLE.outputs:
        assert dtypes[tensor.name] is tensor.dtype, tensor.name


def test_every_input_of_the_ensemble_goes_somewhere():
    used = {outer for step in ENSEMBLE.steps for outer in step.inputs.values()}
    assert {tensor.name for tensor in ENSEMBLE.inputs} <= used


def test_every_extension_input_of_the_ensemble_reaches_a_model():
    extensions = {tensor.name for tensor in ENSEMBLE.inputs if tensor.extension}
    reached = {outer for step in ENSEMBLE.steps for tensor, outer in wires(step) if tensor.extension}
    assert extensions == reached
