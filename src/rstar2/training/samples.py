"""Samples of a policy on many problems, on disk: what label checks and mining read.

The record is a JSONL file. Its first line says what made it; each further line is one sample.
Rollouts are dear and rules are cheap: the rules of :mod:`rstar2.training.label_check` read
the record alone and can be run again with another threshold.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rstar2.errors import UserError
from rstar2.grading import Reason, grader
from rstar2.problems import Problem
from rstar2.protocol import StopReason, TokenTemplate
from rstar2.records import (
    RecordError,
    append_json_line,
    atomic_write,
    cut_json_lines,
    deciding_sources,
    read_json_lines,
    run_id,
)
from rstar2.records.files import make_folder
from rstar2.records.grades import decimal
from rstar2.rollout import Engine, RolloutLimits, ToolRunner
from rstar2.rollout.groups import Rollout, roll_out
from rstar2.training.collect import RolloutsLostError

FORMAT = 1
"""Version of the record; raised when an older reader would misread it."""


class OtherSamplesError(UserError):
    """A record was made with other settings or of other problems than those it shall grow by."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """What decides the samples, beside the problems.

    Attributes:
        policy: Names the weights and the engine, as ``qwen3-32b vllm 0.11``.
        samples: Rollouts of each problem.
        limits: Budgets and temperature; with ``max_turns=1`` no tool is ever run.
        seed: Seed of the engine.
    """

    policy: str
    samples: int
    limits: RolloutLimits
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One graded sample, as it stands in a line of the record.

    Attributes:
        problem_id: What was asked.
        question: First 16 hex digits of the SHA-256 of the question's text.
        gold: The label, in decimal.
        sample: Its number among the problem's samples, from 0.
        value: The integer that was read, in decimal; None if there was none, or one of more
            than 14,000 bits.
        reason: Why the grader paid it or not.
        stop: How the rollout ended.
        tokens: Tokens that the model wrote.
        box: The content of the box that decided; empty if there was none.
    """

    problem_id: str
    question: str
    gold: str
    sample: int
    value: str | None
    reason: Reason
    stop: StopReason
    tokens: int
    box: str

    @property
    def correct(self) -> bool:
        """Whether the answer equals the label."""
        return self.reason is Reason.CORRECT

    def is_of(self, problem: Problem) -> bool:
        """Whether it was made of this text with this label."""
        same_text = self.question == _digest(problem.question)
        return same_text and self.gold == decimal(problem.answer)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """A record as read.

    Attributes:
        header: What made it: the settings, and what names the prompt's texts and the grader.
        samples: Its samples, in any order; a problem may lack some.
    """

    header: dict[str, Any]
    samples: tuple[Sample, ...]

    @property
    def samples_per_problem(self) -> int:
        """Samples that each problem gets."""
        return int(self.header["samples"])


async def sample_problems(
    path: Path,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    *,
    engine: Engine,
    sandbox: ToolRunner,
    template: TokenTemplate,
    in_flight: int = 256,
    on_problems: Callable[[int, int], None],
) -> None:
    """Rolls out every problem and writes the samples of each as soon as all of them are there.

    A second call skips problems that have all their samples and samples the others anew. A
    problem's rollouts carry its name and no place, so a resumed record has the same random
    numbers as a whole one.

    Args:
        path: The record; made with its folder if it is not there.
        problems: The problems; more than the record has are added to it.
        settings: What decides the samples.
        engine: Samples with the policy's weights and the settings' seed.
        sandbox: Runs programs.
        template: Encodes what the model does not write.
        in_flight: Rollouts at once, at least those of one problem.
        on_problems: Called with the problems done and their total number.

    Raises:
        OtherSamplesError: If the record was made with other settings, another grader, or of
            problems with these names and other texts or labels.
        RolloutsLostError: If not one rollout of a problem could be finished.
        RecordError: If the record cannot be read or written.
        ValueError: If two problems have one name.
    """
    if repeated := [name for name, n in Counter(p.problem_id for p in problems).items() if n > 1]:
        raise ValueError(f"{len(repeated)} problem names stand there twice, as {repeated[0]!r}")
    finished = _open(path, problems, _header(settings, template))
    waiting = [problem for problem in problems if problem.problem_id not in finished]
    done = len(problems) - len(waiting)
    on_problems(done, len(problems))

    async def one(problem: Problem) -> None:
        nonlocal done
        (rollouts,) = await roll_out(
            [problem],
            settings.samples,
            name=f"samples/{problem.problem_id}",
            engine=engine,
            sandbox=sandbox,
            template=template,
            limits=settings.limits,
        )
        if not rollouts:
            raise RolloutsLostError(
                f"the sandbox lost every rollout of {problem.problem_id}: `rstar2 doctor` looks "
                f"at it; what was sampled stands in {path}, run it again to go on"
            )
        for rollout in rollouts:
            append_json_line(path, asdict(_sample(rollout)))
        done += 1
        on_problems(done, len(problems))

    chunk = max(1, in_flight // settings.samples)
    for start in range(0, len(waiting), chunk):
        await _together([one(problem) for problem in waiting[start : start + chunk]])


def read_samples(path: Path) -> SampleRecord:
    """Reads a record; a line that a kill has torn is left out.

    Raises:
        RecordError: If there is no record, it has another format, or a line is no sample.
    """
    lines = read_json_lines(path)
    if not lines or lines[0].get("format") != FORMAT:
        raise RecordError(f"{path} is no record of samples of format {FORMAT}")
    samples = [_parsed(row, path, line) for line, row in enumerate(lines[1:], start=2)]
    seen = Counter((sample.problem_id, sample.sample) for sample in samples)
    if twice := [name for (name, _), count in seen.items() if count > 1]:
        raise RecordError(
            f"{path} has two samples of one number of {twice[0]!r}: two processes wrote it at "
            "once; remove it and sample again"
        )
    return SampleRecord(lines[0], tuple(samples))


def _header(settings: SamplingSettings, template: TokenTemplate) -> dict[str, Any]:
    sources = deciding_sources(Path(grader.__file__))
    return {
        "format": FORMAT,
        **asdict(settings),
        "texts": _digest(repr(template.manifest)),
        "grader": run_id("grader", {}, sources),
    }


def _open(path: Path, problems: Sequence[Problem], header: dict[str, Any]) -> set[str]:
    """The names of the problems that are finished; the samples of others are cut off."""
    make_folder(path.parent)
    if not path.exists():
        atomic_write(path, json.dumps(header, ensure_ascii=False).encode() + b"\n")
        return set()
    record = read_samples(path)
    if other := [name for name in header if header[name] != record.header.get(name)]:
        name = other[0]
        raise OtherSamplesError(
            f"{path} was made with {name} {record.header.get(name)!r}, now it is "
            f"{header[name]!r}: name another file, or remove this one"
        )
    asked = {problem.problem_id: problem for problem in problems}
    for sample in record.samples:
        problem = asked.get(sample.problem_id)
        if problem is not None and not sample.is_of(problem):
            raise OtherSamplesError(
                f"{path} has samples of {sample.problem_id!r} with another text or label: name "
                "another file, or remove this one"
            )
    counts = Counter(sample.problem_id for sample in record.samples)
    finished = {name for name, count in counts.items() if count == record.samples_per_problem}
    cut_json_lines(path, lambda row: "format" in row or row["problem_id"] in finished)
    return finished


def _sample(rollout: Rollout) -> Sample:
    value = rollout.verdict.value
    return Sample(
        problem_id=rollout.problem.problem_id,
        question=_digest(rollout.problem.question),
        gold=decimal(rollout.problem.answer),
        sample=rollout.sample,
        value=None if value is None else decimal(value),
        reason=rollout.verdict.reason,
        stop=rollout.trajectory.stop,
        tokens=rollout.trajectory.num_model_tokens,
        box=rollout.verdict.box,
    )


def _parsed(row: dict[str, Any], path: Path, line: int) -> Sample:
    try:
        return Sample(**{**row, "reason": Reason(row["reason"]), "stop": StopReason(row["stop"])})
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}, line {line}: no sample: {error!r}") from error


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Does all at once; when one fails or the caller is cancelled, the others are ended first."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
