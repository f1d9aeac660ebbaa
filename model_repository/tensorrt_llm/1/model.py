"""Model `tensorrt_llm`: token ids in, token ids out.

The tensors are stated in `naiad.contract`, the work is done in `naiad.serving`; this file only binds them.
"""

from naiad.triton.engine_host import EngineHost


class TritonPythonModel(EngineHost):
    """Bound by name: Triton's Python backend looks for this class."""
