"""A tiny Triton repository for tests of the server itself: no engine, loads in about a second.

echo   unary:     text_input BYTES[1] (+ max_tokens INT32[1], ignored) -> text_output BYTES[1]
slow   decoupled: count INT32[1], delay_s FP32[1] -> `count` responses text_output, one every delay_s
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_minimal_repository"]

_ECHO_CONFIG = """\
name: "echo"
backend: "python"
max_batch_size: 8
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""

_ECHO_MODEL = """\
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb.get_input_tensor_by_name(request, "text_input").as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("text_output", text)]))
        return answers
"""

_SLOW_CONFIG = """\
name: "slow"
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [
  { name: "count" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "delay_s" data_type: TYPE_FP32 dims: [ 1 ] }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""

_SLOW_MODEL = """\
import threading
import time

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for request in requests:
            count = int(pb.get_input_tensor_by_name(request, "count").as_numpy()[0])
            delay_s = float(pb.get_input_tensor_by_name(request, "delay_s").as_numpy()[0])
            sender = request.get_response_sender()
            thread = threading.Thread(target=self.stream, args=(sender, count, delay_s))
            self.threads.append(thread)
            thread.start()

    def stream(self, sender, count, delay_s):
        for index in range(count):
            time.sleep(delay_s)
            text = np.array([str(index).encode()], dtype=np.object_)
            sender.send(pb.InferenceResponse([pb.Tensor("text_output", text)]))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
"""

_MODELS = {"echo": (_ECHO_CONFIG, _ECHO_MODEL), "slow": (_SLOW_CONFIG, _SLOW_MODEL)}


def write_minimal_repository(folder: Path) -> Path:
    """Write both models under `folder` and return it."""
    for name, (config, source) in _MODELS.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (version / "model.py").write_text(source)
    return folder
