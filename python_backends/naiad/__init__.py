"""Naiad: large language models behind Triton, with NVIDIA's TensorRT-LLM tensor contract."""

__version__ = "0.1.0"
