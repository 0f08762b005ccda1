"""Makes both runs of a seed: undisturbed, as a reference, or killed at given moments."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resume.checkout import PRESET, ROOT, differences
from benchmarks.resume.moments import Moment, Part, part_of
from rstar2.errors import UserError

ARM = "grpo-roc"
_POLL_SECONDS = 0.01
_ATTEMPTS = 6
_EARLIER = 0.6


class ResumeError(UserError):
    """A run failed by itself, or could not be killed where it should be."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that hit.

    Attributes:
        moment: Where it was to hit, and did.
        after: Seconds after the beginning of the part at which it did.
        lost: Seconds of work that the kill undid: since the last state on disk.
        attempts: Tries; a part that ended before the moment came is tried again, earlier.
    """

    moment: Moment
    after: float
    lost: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Both runs of a seed in a checkout.

    Attributes:
        root: The checkout.
        seed: The seed.
        boundary: RL steps before the stage that mines.
        worker: The program that makes the runs.
    """

    root: Path
    seed: int
    boundary: int
    worker: tuple[str, ...] = (sys.executable, "-m", "benchmarks.resume.worker")

    def undisturbed(self) -> dict[Part, float]:
        """Makes both runs; gives the seconds of each part.

        Raises:
            ResumeError: If a run fails.
        """
        began: dict[Part, float] = {}
        last, order = 0.0, list[Part]()
        with self._process() as process:
            while process.poll() is None:
                part, last = self.part(), time.monotonic()
                if part is not None and part not in began:
                    began[part] = last
                    order.append(part)
                time.sleep(_POLL_SECONDS)
            self._check(process)
        if order != list(Part):
            raise ResumeError(f"a reference went through {', '.join(order)}: make it longer")
        ends = [*(began[part] for part in order[1:]), last]
        return {part: end - began[part] for part, end in zip(order, ends, strict=True)}

    def killed(self, moments: Sequence[Moment]) -> list[Kill]:
        """Makes both runs through kills at the moments, which stand in the order of the runs.

        Raises:
            ResumeError: If a run fails, or a part is always over before its moment.
        """
        kills = [self._kill(moment) for moment in moments]
        with self._process() as process:
            process.wait()
            self._check(process)
        return kills

    def differences(self, other: "Chain") -> list[str]:
        """Files of the runs that are not equal to those of ``other``."""
        return [
            f"{one.name}/{name}"
            for one, its in zip(self._runs(), other._runs(), strict=True)
            for name in differences(one, its)
        ]

    def part(self) -> Part | None:
        """The stretch that the runs are in."""
        for run in reversed(self._runs()):
            try:
                progress = json.loads((run / "progress.json").read_bytes())["phase"]
            except FileNotFoundError:
                continue
            arm, mined = run.name.split("-")[2] != "sft", any(run.glob("mined-*.json"))
            return part_of(progress, arm=arm, boundary=self.boundary, mined=mined)
        return None

    def _kill(self, moment: Moment) -> Kill:
        before = self.root.with_name(f"{self.root.name}-before")
        runs, after = self.root / "runs", moment.after
        runs.mkdir(exist_ok=True)
        shutil.copytree(runs, before)
        for attempt in range(1, 1 + _ATTEMPTS):
            killed = self._try(moment.part, after)
            if killed is not None:
                shutil.rmtree(before)
                return Kill(moment, *killed, attempt)
            shutil.rmtree(runs)
            shutil.copytree(before, runs)
            after *= _EARLIER
        raise ResumeError(f"{moment.part} was over before it could be killed, {_ATTEMPTS} times")

    def _try(self, part: Part, after: float) -> tuple[float, float] | None:
        """Kills a session in a part: seconds after its beginning, and seconds lost."""
        for progress in self.root.glob("runs/*/progress.json"):
            progress.unlink()
        started = time.time()
        with self._process() as process:
            while self.part() is not part:
                if process.poll() is not None:
                    self._check(process)
                    return None
                time.sleep(_POLL_SECONDS)
            began = time.monotonic()
            while (since := time.monotonic() - began) < after:
                if process.poll() is not None or self.part() is not part:
                    return None
                time.sleep(min(_POLL_SECONDS, after - since))
            if process.poll() is not None:
                return None
            process.send_signal(signal.SIGKILL)
            lost = time.time() - max([started, *self._saved()])
            if process.wait() != -signal.SIGKILL or self.part() is not part:
                return None
        return since, lost

    def _saved(self) -> list[float]:
        """When the states on disk were written from which a run goes on."""
        kinds = ("checkpoints/step-??????", "checkpoints/final", "evaluation.jsonl", "mined-*.json")
        return [path.stat().st_mtime for kind in kinds for path in self.root.glob(f"runs/*/{kind}")]

    def _runs(self) -> list[Path]:
        """The SFT run, then the arm."""
        return sorted(self.root.glob("runs/*"), reverse=True)

    @contextmanager
    def _process(self) -> Iterator["subprocess.Popen[bytes]"]:
        words = [PRESET, str(self.seed), "sft", ARM]
        with (self.root / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                [*self.worker, *words],
                cwd=self.root,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
                stderr=log,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def _check(self, process: "subprocess.Popen[bytes]") -> None:
        if process.returncode != 0:
            tail = (self.root / "log.txt").read_text(errors="replace").strip().rsplit("\n", 1)[-1]
            raise ResumeError(f"a run failed by itself (exit code {process.returncode}): {tail}")
