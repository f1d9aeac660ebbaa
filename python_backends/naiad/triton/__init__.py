"""The only place that talks to Triton's Python backend: hosts, tensors, calls of other models, metrics."""
