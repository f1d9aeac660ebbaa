"""Model `preprocessing`: text or chat messages to token ids.

The tensors are stated in `naiad.contract`, the work is done in `naiad.serving`; this file only binds them.
"""

from naiad.triton.batch_host import PreprocessingHost


class TritonPythonModel(PreprocessingHost):
    """Bound by name: Triton's Python backend looks for this class."""
