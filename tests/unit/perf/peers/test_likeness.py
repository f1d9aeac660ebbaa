"""Whether contestants answer alike, as far as their words show."""

from __future__ import annotations

import pytest

from naiad_perf.errors import PerfError
from naiad_perf.peers.likeness import Likeness, likeness
from tests.harness.scripted_peer import ScriptedPeer


def test_the_first_characters_count() -> None:
    peers = [
        ScriptedPeer("ours"),
        ScriptedPeer("same", says=lambda text: f" {text.upper()[:20]} and other words"),
        ScriptedPeer("other", says=lambda text: "Mars" if "planet" in text else text.upper()),
        ScriptedPeer("wordless", says=lambda text: None),
    ]
    assert likeness(peers, "ours") == {"same": Likeness(8, 8), "other": Likeness(7, 8)}


def test_without_ours_there_is_nothing_to_be_like() -> None:
    assert likeness([ScriptedPeer("same")], "ours") == {}


def test_a_failure_is_not_an_unlike_answer() -> None:
    def fail(text: str) -> str:
        raise PerfError("gone")

    with pytest.raises(PerfError, match="gone"):
        likeness([ScriptedPeer("ours"), ScriptedPeer("same", says=fail)], "ours")
