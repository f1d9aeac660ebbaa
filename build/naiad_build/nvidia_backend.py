"""The contract without what only Naiad's own engines have: for NVIDIA's C++ backend `tensorrtllm`.

That backend ignores inputs and parameters it does not know, but an output that is declared and never made
ends an ensemble that waits for it in an error.
"""

from __future__ import annotations

from dataclasses import replace

from naiad.contract import TENSORRT_LLM, ModelSpec

__all__ = ["KEYS_THAT_MUST_EXIST", "for_nvidias_backend"]

KEYS_THAT_MUST_EXIST = frozenset({"gpt_model_path", "tokenizer_dir", "xgrammar_tokenizer_info_path"})
"""Parameters of `tensorrt_llm` that the backend looks up even when they are empty."""


def for_nvidias_backend(spec: ModelSpec) -> ModelSpec:
    """Return a model's contract where the engine is NVIDIA's backend."""
    if spec.name == TENSORRT_LLM.name:
        return replace(
            spec,
            inputs=tuple(tensor for tensor in spec.inputs if not tensor.extension),
            outputs=tuple(tensor for tensor in spec.outputs if not tensor.extension),
            parameters=tuple(parameter for parameter in spec.parameters if not parameter.extension),
        )
    return _ensemble(spec) if spec.steps else spec


def _ensemble(spec: ModelSpec) -> ModelSpec:
    engine = for_nvidias_backend(TENSORRT_LLM)
    taken = {tensor.name for tensor in engine.inputs}
    made = {tensor.name for tensor in engine.outputs}
    steps = tuple(
        replace(
            step,
            inputs={name: outer for name, outer in step.inputs.items() if name in taken},
            outputs={name: outer for name, outer in step.outputs.items() if name in made},
        )
        if step.model == engine.name
        else step
        for step in spec.steps
    )
    read = {outer for step in steps for outer in step.inputs.values()}
    written = {outer for step in steps for outer in step.outputs.values()}
    return replace(
        spec,
        steps=steps,
        inputs=tuple(tensor for tensor in spec.inputs if tensor.name in read),
        outputs=tuple(tensor for tensor in spec.outputs if tensor.name in written),
    )
