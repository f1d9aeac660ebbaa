"""Downloads what is needed, and no more, of a Hugging Face repository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from naiad_build.disk import ensure_free_space, publish, staging_directory
from naiad_build.errors import SourceError
from naiad_build.progress import Progress, watch_growth

__all__ = ["Snapshot", "download_repository", "needed_files"]

_SETTINGS_SUFFIXES = (".json", ".jinja", ".model", ".txt")
_IR_MODEL = "openvino_model.xml"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A downloaded revision: its folder and full commit id."""

    path: Path
    commit: str


def needed_files(repository: str, files: Sequence[str], wanted: str | None) -> list[str]:
    """Choose from a repository's `files`: the `wanted` GGUF, an OpenVINO IR, safetensors, or its only GGUF.

    Raises:
        SourceError: the choice is not clear or nothing usable is there; the message lists what is.
    """
    ggufs = [name for name in files if name.endswith(".gguf")]
    top = [name for name in files if "/" not in name]
    settings = [name for name in top if name.endswith(_SETTINGS_SUFFIXES)]
    if wanted is not None:
        if wanted not in files:
            raise SourceError(
                f"{repository} has no file {wanted}; its GGUF files: {', '.join(ggufs) or 'none'}"
            )
        return [wanted]
    if _IR_MODEL in top:
        return sorted({*settings, *(name for name in top if name.startswith("openvino_"))})
    weights = [name for name in top if name.endswith(".safetensors")]
    if weights:
        return sorted({*settings, *weights})
    if len(ggufs) == 1:
        return ggufs
    if ggufs:
        raise SourceError(
            f"{repository} has {len(ggufs)} GGUF files; name one, as hf:{repository}/{ggufs[0]}"
        )
    raise SourceError(
        f"{repository} has no OpenVINO IR, safetensors or GGUF; it holds: {', '.join(files[:20])}"
    )


def download_repository(
    repository: str, revision: str | None, file: str | None, cache: Path, progress: Progress
) -> Snapshot:
    """Download the needed files of `repository` to ``cache/<owner>--<name>/<commit>[--<file>]``.

    A full commit id already downloaded is reused without asking the network.

    Raises:
        SourceError: no network, no such repository, revision or file, or access to it is restricted.
        NotEnoughSpaceError: the disk cannot hold it.
    """
    # Version 1 is built on httpx, version 2 on httpx2; this name is the base error of either.
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError  # type: ignore[attr-defined]

    folder = cache / repository.replace("/", "--")
    if revision is not None and (known := folder / _folder_name(revision, file)).is_dir():
        return Snapshot(known, revision)
    try:
        return _download(repository, revision, file, folder, progress)
    except HFValidationError as error:
        raise SourceError(f"hf:{repository} is no valid repository name: {error}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no status"
        raise SourceError(
            f"Hugging Face refused hf:{repository}{'@' + revision if revision else ''} ({status}): check the "
            "name and revision; a gated or private model needs HF_TOKEN"
        ) from error
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise SourceError(
            f"no connection to Hugging Face for hf:{repository} ({type(error).__name__}): check the network "
            "and proxy; a model on this machine works without one (gguf:PATH, dir:PATH)"
        ) from error


def _download(
    repository: str, revision: str | None, file: str | None, folder: Path, progress: Progress
) -> Snapshot:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    progress(f"Asking for the files of {repository}")
    info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    if info.sha is None:
        raise SourceError(f"hf:{repository} has no commit to pin")
    final = folder / _folder_name(info.sha, file)
    if final.is_dir():
        return Snapshot(final, info.sha)
    siblings = info.siblings or []
    chosen = needed_files(repository, [sibling.rfilename for sibling in siblings], file)
    total = sum(sibling.size or 0 for sibling in siblings if sibling.rfilename in chosen)
    with staging_directory(folder, "download") as staging:
        ensure_free_space(staging, total, f"Downloading {repository}")
        disable_progress_bars()
        with watch_growth(staging, total, f"Downloading {repository}", progress):
            snapshot_download(repository, revision=info.sha, allow_patterns=chosen, local_dir=staging)
        publish(staging, final)
    return Snapshot(final, info.sha)


def _folder_name(commit: str, file: str | None) -> str:
    return commit if file is None else f"{commit}--{file.replace('/', '--')}"
