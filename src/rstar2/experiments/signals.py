"""Signals that end a command: noted where it looks for them, or unwinding its stack at once.

An exception that a handler raises is lost where Python is just then in a finalizer; a command
that looks now and then notes its signals instead.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_noted(
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGHUP),
) -> Iterator[list[int]]:
    """Notes signals in the list that it yields, and does nothing else about them.

    What is ignored, as SIGHUP by ``nohup``, stays so. Only the main thread may handle signals;
    in another one nothing is noted.

    Args:
        numbers: The signals.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    former = {
        one: signal.signal(one, lambda number, _: noted.append(number))
        for one in numbers
        if signal.getsignal(one) is not signal.SIG_IGN
    }
    try:
        yield noted
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


@contextmanager
def signals_unwind(
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGHUP),
) -> Iterator[None]:
    """Makes signals unwind the stack; whoever asks twice waits until it is unwound.

    What is ignored, as SIGHUP by ``nohup``, stays so. Only the main thread may handle signals;
    in another one nothing changes.

    Args:
        numbers: The signals; SIGINT among them comes at once, also in an event loop, which
            would hold Ctrl-C back until its program next waits.

    Raises:
        SystemExit: On a signal, with 128 and its number.
        KeyboardInterrupt: On SIGINT.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]

    def leave(number: int, _: FrameType | None) -> None:
        for one in handled:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    former = {one: signal.signal(one, leave) for one in handled}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
