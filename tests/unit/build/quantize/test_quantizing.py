"""Formats made for real, by NNCF, of a model in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from naiad.settings.model_directory import read_manifest
from naiad_build import disk
from naiad_build.cli import app
from naiad_build.errors import BuildError, NotEnoughSpaceError, UnsupportedModelError
from naiad_build.prepare import is_prepared, prepare
from naiad_build.quantize import openvino_quantizer
from naiad_build.quantize.calibration import PACKAGED
from naiad_build.quantize.formats import FORMATS, chosen_format
from naiad_build.quantize.openvino_quantizer import Calibration
from tests.harness.repository import ROOT
from tests.harness.tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.openvino, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "Tiny-Chat.F16.gguf"
    write_tiny_gguf(path, all_bytes=False)
    return f"gguf:{path}"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own for models; NNCF's environment is kept from run to run."""
    folder = tmp_path_factory.mktemp("artifacts")
    (ROOT / ".artifacts" / "tools").mkdir(parents=True, exist_ok=True)
    (folder / "tools").symlink_to(ROOT / ".artifacts" / "tools")
    return folder


@pytest.mark.parametrize("name", ["int8", "int8_sq", "fp8"])
def test_a_format_is_made_from_sixteen_bits_and_answers(source: str, artifacts: Path, name: str) -> None:
    path = prepare(source, artifacts, weights=FORMATS[name], calibration=Calibration(windows=2, tokens=16))
    assert path.name == f"tiny-chat-{name}"
    assert is_prepared(path)
    manifest = read_manifest(path)
    base = read_manifest(artifacts / "models" / "tiny-chat-fp16")
    assert manifest.format == f"openvino-ir {name} from gguf f32"
    assert manifest.source == base.source == source
    assert manifest.tokenizer_sha256 == base.tokenizer_sha256
    assert manifest.files["openvino_model.bin"].size_bytes < base.files["openvino_model.bin"].size_bytes
    assert manifest.quantization is not None
    assert manifest.quantization.format == name
    calibrated = FORMATS[name].needs_calibration
    assert manifest.quantization.calibration_sha256 == (disk.sha256_of(PACKAGED) if calibrated else None)
    assert manifest.quantization.calibration_tokens == (32 if calibrated else 0)
    assert manifest.tool_versions["nncf"] == "3.4.0"


def test_other_settings_are_another_model(source: str, artifacts: Path) -> None:
    prepare(source, artifacts, weights=FORMATS["int8_sq"], calibration=Calibration(windows=2, tokens=16))
    with pytest.raises(BuildError, match="with other settings: choose another --name or --replace it"):
        prepare(source, artifacts, weights=chosen_format("int8_sq", smooth_quant=0.5))
    with pytest.raises(BuildError, match="with other settings: choose another --name or --replace it"):
        prepare(source, artifacts, weights=FORMATS["int8_sq"], calibration=Calibration(windows=3, tokens=16))


def test_a_format_is_not_made_of_another_one(source: str, artifacts: Path, tmp_path: Path) -> None:
    few = prepare(source, artifacts, weights=FORMATS["int8"])
    with pytest.raises(UnsupportedModelError, match=r"has matrices in u8 already.*give the original weights"):
        prepare(f"dir:{few}", tmp_path, weights=FORMATS["fp16"])
    assert not [path for path in (tmp_path / "models").iterdir() if path.is_dir()]


def test_a_failure_leaves_nothing_but_the_base(
    source: str, artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_quantizer, "_HERE", tmp_path)  # no worker there
    monkeypatch.setattr(openvino_quantizer, "nncf_environment", lambda _: _Installed())
    with pytest.raises(BuildError, match="NNCF failed"):
        prepare(source, artifacts, name="broken", weights=FORMATS["int8"])
    assert not (artifacts / "models" / "broken").exists()
    assert not [path for path in (artifacts / "models").iterdir() if "making" in path.name]


def test_too_little_memory_is_said_first(
    source: str, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Memory:
        available = 1000

    monkeypatch.setattr("naiad_build.disk.psutil.virtual_memory", lambda: Memory)
    with pytest.raises(NotEnoughSpaceError, match=r"as int4 needs about .* GB of memory"):
        prepare(source, artifacts, weights=FORMATS["int4"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "int8", "--group-size", "64"], "format int8 has no group size"),
        (["--format", "int4", "--calibration", "text.txt"], "format int4 is not calibrated: leave out"),
        (["--format", "fp8", "--calibration", "/gone.txt"], "/gone.txt cannot be read"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error_of_the_command(
    source: str, artifacts: Path, options: list[str], said: str
) -> None:
    done = CliRunner().invoke(app, ["quantize", source, *options, "--artifacts", str(artifacts)])
    assert done.exit_code == 1
    assert said in done.output


class _Installed:
    python = Path("/usr/bin/python3")

    def install(self, report: object) -> None:
        pass
