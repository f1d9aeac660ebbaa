"""Model `tensorrt_llm_bls`: text in, text deltas out.

The tensors are stated in `naiad.contract`, the work is done in `naiad.serving`; this file only binds them.
"""

from naiad.triton.text_host import TextHost


class TritonPythonModel(TextHost):
    """Bound by name: Triton's Python backend looks for this class."""
