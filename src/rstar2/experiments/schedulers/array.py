"""What a scheduler is to run: the tasks of a sweep, wave after wave."""

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath

from rstar2.errors import UserError
from rstar2.experiments.resources import ResourcesSpec

CHECKPOINT_SECONDS = 300
"""The least that a task that is told to stop gets for its checkpoint."""

_LONGEST_STEM = 36
"""With wave and index, a name must fit the 63 characters of a DNS label."""


class SchedulerError(UserError):
    """A scheduler cannot run these tasks."""


@dataclass(frozen=True, slots=True)
class Array:
    """Tasks for a scheduler.

    Attributes:
        sweep: The sweep's file, as it is typed after ``rstar2 batch run``.
        waves: Numbers of the tasks still to do; each wave needs the one before it. A wave
            may be empty.
        resources: What each task takes.
        at_once: Tasks that run at the same time.
        checkpoint_seconds: What a task that is told to stop gets until it is ended; a run makes
            its checkpoint when its step is over.

    Raises:
        SchedulerError: If the name of the sweep's file is not UTF-8.
        ValueError: If no task may run at a time.
    """

    sweep: str
    waves: tuple[tuple[int, ...], ...]
    resources: ResourcesSpec
    at_once: int
    checkpoint_seconds: int = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise ValueError(f"at_once is {self.at_once}: at least one task runs at a time")
        try:
            self.sweep.encode()
        except UnicodeEncodeError as error:
            raise SchedulerError(
                f"the path {self.sweep!r} is not UTF-8, no script can hold it: rename the file"
            ) from error

    @property
    def name(self) -> str:
        """What the jobs are called: a DNS label, made from the name of the sweep's file."""
        stem = re.sub(r"[^a-z0-9]+", "-", PurePath(self.sweep).stem.lower()).strip("-")
        return f"rstar2-{stem[:_LONGEST_STEM].strip('-') or 'sweep'}"

    def command(self, task: str) -> str:
        """The one command that all schedulers run, for a shell.

        Args:
            task: The task's number, as the shell is to read it.
        """
        return f"rstar2 batch run --task {task} -- {shlex.quote(self.sweep)}"

    def waves_left(self) -> tuple[tuple[int, ...], ...]:
        """The waves that have a task.

        Raises:
            SchedulerError: If none has one.
        """
        left = tuple(wave for wave in self.waves if wave)
        if not left:
            raise SchedulerError(f"{self.sweep}: nothing to do, every run is done")
        return left
