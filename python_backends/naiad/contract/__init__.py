"""The serving contract: tensors, generation types and errors. Imports nothing else of Naiad."""

from naiad.contract.engine_model import TENSORRT_LLM
from naiad.contract.ensemble_model import ENSEMBLE
from naiad.contract.generation import (
    FinishReason,
    GenerationRequest,
    RequestTimes,
    SamplingParams,
    TokenChunk,
)
from naiad.contract.tensors import DataType, EnsembleStep, ModelSpec, ParameterSpec, TensorSpec
from naiad.contract.text_models import POSTPROCESSING, PREPROCESSING, TENSORRT_LLM_BLS

MODELS = (PREPROCESSING, TENSORRT_LLM, POSTPROCESSING, ENSEMBLE, TENSORRT_LLM_BLS)

__all__ = [
    "ENSEMBLE",
    "MODELS",
    "POSTPROCESSING",
    "PREPROCESSING",
    "TENSORRT_LLM",
    "TENSORRT_LLM_BLS",
    "DataType",
    "EnsembleStep",
    "FinishReason",
    "GenerationRequest",
    "ModelSpec",
    "ParameterSpec",
    "RequestTimes",
    "SamplingParams",
    "TensorSpec",
    "TokenChunk",
]
