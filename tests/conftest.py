"""For all tests: signals arrive, and find a stack to be handled on."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in a shell's background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SS_DISABLE = 2


class _SignalStack(ctypes.Structure):
    """`stack_t` of sigaltstack(2)."""

    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@pytest.fixture(autouse=True)
def handle_signals_on_the_ordinary_stack() -> Iterator[None]:
    """OpenVINO in this process leaves the thread an alternate signal stack that it unmaps later.

    Python handles signals there, so the next one, such as a test's own Ctrl-C, would be a SIGSEGV.
    """
    yield
    none = _SignalStack(None, _SS_DISABLE, 0)
    ctypes.CDLL(None).sigaltstack(ctypes.byref(none), None)
