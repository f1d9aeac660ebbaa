"""Model `postprocessing`: token ids to text.

The tensors are stated in `naiad.contract`, the work is done in `naiad.serving`; this file only binds them.
"""

from naiad.triton.batch_host import PostprocessingHost


class TritonPythonModel(PostprocessingHost):
    """Bound by name: Triton's Python backend looks for this class."""
