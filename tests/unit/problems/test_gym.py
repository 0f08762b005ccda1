"""reasoning-gym behind our splits and our grader; without the extra, one plain error."""

from collections import Counter
from importlib.util import find_spec

import pytest

from rstar2.errors import UserError
from rstar2.grading import grade
from rstar2.problems import Split
from rstar2.problems.ladder.gym import GymTask, gym_problems

installed = find_spec("reasoning_gym") is not None
needs_gym = pytest.mark.skipif(
    not installed, reason="reasoning-gym is not installed: pip install 'rstar2[gym]'"
)


@pytest.mark.skipif(installed, reason="reasoning-gym is installed")
def test_without_the_extra_the_error_names_it() -> None:
    with pytest.raises(UserError, match=r"pip install 'rstar2\[gym\]'"):
        gym_problems(GymTask.LCM, Split.TRAIN, 0, 1)


@needs_gym
@pytest.mark.parametrize("task", GymTask)
def test_a_task_gives_distinct_integer_problems_again_and_again(task: GymTask) -> None:
    found = gym_problems(task, Split.TRAIN, 0, 50)
    assert found == gym_problems(task, Split.TRAIN, 0, 50)
    assert len({problem.question for problem in found.problems}) == 50
    assert len({problem.problem_id for problem in found.problems}) == 50
    assert {problem.family for problem in found.problems} == {f"gym_{task}"}
    for problem in found.problems:
        boxed = f"<answer>\\boxed{{{problem.answer}}}</answer>"
        assert grade(boxed, problem.answer).correct


@needs_gym
@pytest.mark.parametrize("task", GymTask)
def test_splits_share_no_question_and_seeds_no_stream(task: GymTask) -> None:
    train, other_seed, held_out = (
        {problem.question for problem in gym_problems(task, split, seed, 50).problems}
        for split, seed in ((Split.TRAIN, 0), (Split.TRAIN, 1), (Split.HELD_OUT, 0))
    )
    assert not train & held_out
    assert len(train & other_seed) < 15


@needs_gym
@pytest.mark.parametrize("task", GymTask)
def test_guessing_earns_next_to_nothing(task: GymTask) -> None:
    train, held_out = (
        gym_problems(task, split, 0, 150).problems for split in (Split.TRAIN, Split.HELD_OUT)
    )
    commonest = Counter(problem.answer for problem in train).most_common(1)[0][0]
    assert sum(problem.answer == commonest for problem in held_out) / 150 < 0.05


@needs_gym
def test_a_task_that_runs_dry_says_so() -> None:
    with pytest.raises(UserError, match=r"gym task lcm gave .* ask for fewer"):
        gym_problems(GymTask.LCM, Split.DEV, 0, 1_200)
