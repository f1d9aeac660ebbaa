from __future__ import annotations

import os
from pathlib import Path

import pytest

from naiad.server import output
from naiad.server.output import OutputPump

LINES = """\
I1129 23:19:58.432459 6119 grpc_server.cc:2558] "Started GRPCInferenceService at 127.0.0.1:9101"
W1129 23:19:58.432459 6119 pb.cc:1] "a warning"
E1129 23:19:58.432459 6119 server.cc:241] "CudaDriverHelper has not been initialized."
E1129 23:19:58.432459 6119 a.cc:1] "unable to create stream for ensemble: CUDA driver version is insufficient"
W1129 23:19:58.432459 6119 a.cc:1] "failed to allocate: no pinned memory pool, falling back to non-pinned"
E1129 23:19:58.432459 6119 model.cc:1] "failed to load 'slow'"
a model's own words
"""


def pump(text: str, path: Path, *, verbose: bool = False) -> tuple[OutputPump, list[str]]:
    shown: list[str] = []
    running = OutputPump(path, shown.append, verbose=verbose)
    reader, writer = os.pipe()
    running.start(os.fdopen(reader, "rb"), "tritonserver --flags")
    with os.fdopen(writer, "w") as file:
        file.write(f"{text}END\n")
    running.close()
    return running, shown


def test_the_file_gets_every_line_under_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    pump(LINES, path)
    heading, _, rest = path.read_text().partition("\n")
    assert heading.endswith("tritonserver --flags")
    assert rest == f"{LINES}END\n"


def test_the_console_gets_errors_and_warnings_without_the_noise_of_a_missing_gpu(tmp_path: Path) -> None:
    running, shown = pump(LINES, tmp_path / "a.log")
    assert shown == ['"a warning"', "\"failed to load 'slow'\""]
    assert running.errors == ("\"failed to load 'slow'\"",)


def test_a_models_traceback_is_for_the_file_alone(tmp_path: Path) -> None:
    trace = r"\n\nAt:\n  /repository/a.py(39): read\n  /repository/b.py(7): initialize\n"
    line = f'E1129 23:19:58.432459 6119 a.cc:1] "failed to load: parameter x is wrong{trace};"'
    running, shown = pump(f"{line}\n", tmp_path / "a.log")
    assert shown == ['"failed to load: parameter x is wrong;"']
    assert running.errors == tuple(shown)
    assert line in (tmp_path / "a.log").read_text()


def test_verbose_shows_everything(tmp_path: Path) -> None:
    _, shown = pump(LINES, tmp_path / "a.log", verbose=True)
    assert shown == [*LINES.splitlines(), "END"]


def test_bytes_that_are_no_text_break_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    running = OutputPump(path, lambda line: None, verbose=True)
    reader, writer = os.pipe()
    running.start(os.fdopen(reader, "rb"), "x")
    os.write(writer, b"\xff\xfe\nnext\n")
    os.close(writer)
    running.close()
    assert path.read_bytes().endswith(b"\xff\xfe\nnext\n")


def test_a_log_over_its_bound_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_MAX_BYTES", 1000)
    path = tmp_path / "a.log"
    pump("x" * 99 + "\n" * 1 + ("y" * 99 + "\n") * 30, path)
    assert path.stat().st_size <= 1100
    assert (tmp_path / "a.log.1").stat().st_size <= 1100


def test_a_log_that_cannot_be_written_warns_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    _, shown = pump(LINES, tmp_path / "logs" / "a.log", verbose=True)
    assert shown[-1] == "END"
    assert caplog.text.count("the server goes on without its log") == 1
