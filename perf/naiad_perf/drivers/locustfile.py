"""Locust users that ask a Naiad server over gRPC; also a locustfile of its own, with Locust's web page.

    locust -f perf/naiad_perf/drivers/locustfile.py --host 127.0.0.1:8001

Statistics: a row ``gRPC`` for whole requests, ``TTFT`` and ``ITL`` for the times inside them (the ITL row
counts responses, so its rate is responses a second), ``CANCELLED`` for those hung up on. Failures are told
apart by code. The aggregated row is of whole requests only.

Importing this module patches the process for gevent: never import it from another command.
"""

from __future__ import annotations

# isort: off
import locust  # first: it patches the standard library, which everything after it uses
import gevent
import grpc.experimental.gevent as grpc_gevent
# isort: on

import itertools
import os
import random
import signal
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from locust import User, events, task

from naiad_client import GenerationRequest
from naiad_client.client import DEFAULT_MODEL, DEFAULT_URL
from naiad_perf.drivers.timed_streams import StreamingClient, TimedAnswer, request_for
from naiad_perf.records import Outcome
from naiad_perf.workload.load import Prompt

__all__ = ["NaiadUser", "RequestFailed", "report"]

grpc_gevent.init_gevent()

_WORDS = ("the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as")


class RequestFailed(Exception):
    """A request failed; the text is its code alone, so that Locust counts by code."""


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: Any) -> None:
    add = parser.add_argument_group("Naiad").add_argument
    add("--model", default=DEFAULT_MODEL, help="Triton model to ask.")
    add("--prompt-tokens", type=int, default=32, help="Words of each prompt; no two prompts are alike.")
    add("--prompt-file", default="", help="Send these prompts instead, one a line, over and over.")
    add("--answer-tokens", type=int, default=64, help="Exact length of each answer.")
    add("--cancel-after", type=float, default=0.0, help="Seconds after which to hang up; 0: never.")
    add("--answer-timeout", type=float, default=120.0, help="Seconds after which a request has failed.")


@events.init.add_listener  # type: ignore[untyped-decorator]
def _stop_on_ctrl_c(**_: Any) -> None:
    """Let Ctrl-C stop as SIGTERM does; otherwise it ends whichever user's thread is running, and no more."""
    gevent.signal_handler(signal.SIGINT, os.kill, os.getpid(), signal.SIGTERM)


class NaiadUser(User):  # type: ignore[misc]  # Locust is not typed
    """Asks, reads its answer to the end, asks again."""

    host = DEFAULT_URL

    def on_start(self) -> None:
        """Connect."""
        options = self.options
        self.asker = StreamingClient(address(self.host), options.model, options.answer_timeout)
        self.prompts = _prompts(options)

    def on_stop(self) -> None:
        """Disconnect."""
        self.asker.close()

    @property
    def options(self) -> Namespace:
        """What the command line said."""
        options: Namespace | None = self.environment.parsed_options
        if options is None:
            raise RuntimeError("this user is made for Locust's command line")
        return options

    @task  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        """Send one request and report it."""
        answer = self.asker.ask(next(self.prompts), self.options.cancel_after or None)
        report(self.environment, self.options.model, answer)


def address(host: str | None) -> str:
    """Return ``host:port`` from what was typed, which may look like a URL."""
    return (host or DEFAULT_URL).rpartition("//")[2].rstrip("/")


def report(environment: locust.env.Environment, model: str, answer: TimedAnswer) -> None:
    """Enter an answer into Locust's statistics."""
    if answer.ended_ns is None:
        return
    took_ms = (answer.ended_ns - answer.sent_ns) / 1e6
    tokens = sum(answer.response_tokens)
    if answer.outcome is Outcome.CANCELLED:
        environment.stats.get(model, "CANCELLED").log(took_ms, tokens)
        return
    failure = RequestFailed(answer.error) if answer.outcome is Outcome.ERROR else None
    environment.events.request.fire(
        request_type="gRPC",
        name=model,
        response_time=took_ms,
        response_length=tokens,
        exception=failure,
        context={},
    )
    if failure is not None or not answer.response_ns:
        return
    environment.stats.get(model, "TTFT").log((answer.response_ns[0] - answer.sent_ns) / 1e6, 0)
    itl = environment.stats.get(model, "ITL")
    for (earlier, later), count in zip(
        itertools.pairwise(answer.response_ns), answer.response_tokens[1:], strict=True
    ):
        itl.log((later - earlier) / 1e6 / count, count)


def _prompts(options: Namespace) -> Iterator[GenerationRequest]:
    """Yield requests without end."""
    if options.prompt_file:
        lines = Path(options.prompt_file).read_text(encoding="utf-8").splitlines()
        texts: Iterator[str] = itertools.cycle([line for line in lines if line.strip()])
    else:
        texts = _texts(options.prompt_tokens)
    for text in texts:
        yield request_for(Prompt(text, (), options.answer_tokens), takes_ids=False)


def _texts(words: int) -> Iterator[str]:
    chance = random.Random()  # noqa: S311 - load, not secrets
    while True:
        yield " ".join(chance.choice(_WORDS) for _ in range(words))
