"""Signals that end a command: noted where it looks for them, or unwinding its stack at once.

An exception that a handler raises is lost where Python is just then in a finalizer; a command
that looks now and then notes its signals instead.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
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
    with _handled(numbers, lambda number, _: noted.append(number)):
        yield noted


@contextmanager
def signals_unwind(numbers: Sequence[signal.Signals]) -> Iterator[None]:
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

    def leave(number: int, _: FrameType | None) -> None:
        for one in handled:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    with _handled(numbers, leave) as handled:
        yield


@contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[list[signal.Signals]]:
    """Sets a handler, and the former ones again; yields the signals that it handles."""
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    handled = [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]
    former = {one: signal.signal(one, handler) for one in handled}
    try:
        yield handled
    finally:
        for one, its in former.items():
            signal.signal(one, its)
