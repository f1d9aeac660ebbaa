"""Loads for drivers, small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path

from naiad_perf.workload.load import ClosedLoop, Load, LoadTask, Prompt

__all__ = ["load_task", "prompts"]


def prompts(count: int, *, words: int = 4, tokens: int = 7) -> tuple[Prompt, ...]:
    """Return prompts that differ: ``p0 a a a``, ``p1 a a a``, ...; ids 100, 101, ... as often as words."""
    return tuple(
        Prompt(f"p{index}" + " a" * (words - 1), (100 + index,) * words, tokens) for index in range(count)
    )


def load_task(
    folder: Path,
    asked: tuple[Prompt, ...],
    load: Load | None = None,
    *,
    model: str = "tensorrt_llm_bls",
    warm_up: int = 0,
    timeout_s: float = 30.0,
    grpc_url: str = "127.0.0.1:1",
    http_url: str = "127.0.0.1:1",
    cancel_after_s: float | None = None,
) -> LoadTask:
    """Return a task, of one stream unless told otherwise; `folder` is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return LoadTask(
        grpc_url=grpc_url,
        http_url=http_url,
        model=model,
        takes_ids=model == "tensorrt_llm",
        prompts=asked,
        warm_up=warm_up,
        load=load or ClosedLoop(1),
        timeout_s=timeout_s,
        folder=folder,
        cancel_after_s=cancel_after_s,
    )
