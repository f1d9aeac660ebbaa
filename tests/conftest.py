"""For all tests: a signal finds a stack to be handled on."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

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
