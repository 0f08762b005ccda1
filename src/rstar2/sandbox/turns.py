"""Slots given out in order of arrival.

As ``asyncio.Semaphore``, which does not say how many wait, and keeps more for each that does:
tens of thousands may.
"""

import asyncio
import time
from collections import deque


class Turns:
    """A number of slots and the queue in front of them.

    Attributes:
        free: Slots that nobody has.
        asked: How many calls have asked for one.
        waiting: How many wait for one.
        seconds: How long those that got one have waited, together.
    """

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.asked = 0
        self.waiting = 0
        self.seconds = 0.0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a slot; ``give_back`` must follow, once."""
        self.asked += 1
        if self.free:
            self.free -= 1
            return
        arrived = time.monotonic()
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self.waiting -= 1
            else:
                self.give_back()  # it was given in the moment of the cancellation
            raise
        self.seconds += time.monotonic() - arrived

    def give_back(self) -> None:
        """Hand the slot to the next in the queue."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                self.waiting -= 1
                turn.set_result(None)
                return
        self.free += 1
