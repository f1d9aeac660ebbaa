"""Whose processor time is whose: command lines as they are on a running server."""

from __future__ import annotations

import os

import pytest

from naiad_perf.overhead.processes import part_of, processor_time_s

BACKEND = "/home/u/naiad/.artifacts/tritonserver/pytriton-0.7.0-python3.11/pytriton/tritonserver"
STUB = f"{BACKEND}/backends/python/triton_python_backend_stub /home/u/naiad/model_repository"


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (f"{STUB}/tensorrt_llm_bls/1/model.py naiad_b6_1_8000_x 1048576 DEFAULT", "text model"),
        (f"{STUB}/tensorrt_llm/1/model.py naiad_b6_1_8000_x 1048576 DEFAULT", "engine model"),
        (f"{STUB}/preprocessing/3/model.py naiad_b6_1_8000_x 1048576 DEFAULT", "other models"),
        (f"{BACKEND}/bin/tritonserver --model-repository=/home/u/naiad/model_repository", "tritonserver"),
        ("/home/u/naiad/.artifacts/venv/bin/python3 -m naiad.engines.worker 12", "engine"),
        ("python -m naiad serve --profile cpu --http-port 20000", "supervisor"),
        ("python .artifacts/venv/bin/naiad serve", "supervisor"),
        ('/bin/sh -c read -r _ && exit 0; kill -s KILL -- "-$1" naiad-guard 18874', None),
        ("", None),
    ],
)
def test_a_process_belongs_to_the_part_that_its_command_names(command: str, part: str | None) -> None:
    assert part_of(command) == part


def test_a_server_that_is_gone_used_nothing_that_can_be_read() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert processor_time_s(child) == {}
