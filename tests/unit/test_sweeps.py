"""Sweeps: which runs a file asks for, in which order, and what it may not say."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rstar2.errors import UserError
from rstar2.experiments import planner
from rstar2.experiments.notebook_files import NotebookError
from rstar2.experiments.plans import BOOK_SEED, NATURAL_SWEEP, Kind, Plan
from rstar2.experiments.sweeps import (
    Sweep,
    SweepError,
    Task,
    load_sweep,
    notebook_path,
    select,
    waves,
    with_needs,
)

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted(
    path.stem
    for path in (ROOT / "sweeps").glob("*.yaml")
    if path.stem not in ("claims", "verdicts")
)

SFT = {"notebook": "10_run_sft"}
RL = {"notebook": "11_run_rl"}


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path) -> Path:
    """A checkout without sweeps and runs, in which the test stands."""
    shutil.rmtree("sweeps")
    Path("sweeps").mkdir()
    return own_checkout


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """For speed: fewer sources to hash."""
    monkeypatch.setattr(planner, "deciding_sources", lambda entry, _others: [entry])


def sweep(*runs: dict[str, Any], name: str = "x", **settings: Any) -> Sweep:
    """A sweep of the preset test, written and loaded."""
    content = {"preset": "test", "seeds": [0], **settings, "runs": list(runs)}
    Path("sweeps", f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return load_sweep(name)


def names(found: Sweep | Sequence[Task]) -> list[str]:
    tasks = found.tasks if isinstance(found, Sweep) else found
    return [task.plan.name.removeprefix("test-") for task in tasks]


def refused(text: str | bytes) -> str:
    """The one line that a file is refused with."""
    data = text if isinstance(text, bytes) else text.encode()
    Path("sweeps", "x.yaml").write_bytes(data)
    with pytest.raises(SweepError) as caught:
        load_sweep("x")
    return str(caught.value)


def notebook(name: str, parameters: str, code: str = "print(1)") -> Path:
    """A notebook of one's own in the checkout."""
    cells = [
        {
            "cell_type": "code",
            "metadata": {"tags": tags},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for tags, source in ((["parameters"], parameters), ([], code))
    ]
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    return path


def is_done(plan: Plan) -> None:
    """Leaves what is looked at when it is asked whether a run is done."""
    plan.folder.mkdir(parents=True)
    (plan.folder / "run.json").write_text('{"format": 1, "state": "done"}')


# --- the sweeps of the checkout -----------------------------------------------------------


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_of_the_checkout_loads(name: str) -> None:
    loaded = load_sweep(str(ROOT / "sweeps" / f"{name}.yaml"))
    assert loaded.name == name
    assert loaded.spec.description, "it says what it is for"
    assert [task.number for task in loaded.tasks] == list(range(len(loaded.tasks)))
    planned = {plan.folder for plan in loaded.plans}
    for plan in loaded.plans:
        assert all(base.folder in planned for base in plan.chain), "it can start by itself"


def test_the_book_trains_the_first_seed_of_the_natural_sweep() -> None:
    spec = load_sweep(str(ROOT / "sweeps" / f"{NATURAL_SWEEP}.yaml")).spec
    assert spec.seeds is not None
    assert spec.seeds[0] == BOOK_SEED


# --- which runs, in which order -----------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_runs_are_in_the_order_of_seeds_arms_and_notebooks() -> None:
    found = sweep(SFT, RL, seeds=[1, 0], arms=["grpo-roc", "grpo"])
    assert names(found) == [
        "seed1-sft",
        "seed1-grpo-roc",
        "seed1-grpo",
        "seed0-sft",
        "seed0-grpo-roc",
        "seed0-grpo",
    ]
    assert [task.arm for task in found.tasks[:3]] == ["sft", "grpo-roc", "grpo"]
    assert [task.seed for task in found.tasks] == [1, 1, 1, 0, 0, 0]


@pytest.mark.usefixtures("quick")
def test_lists_are_crossed_and_the_first_turns_slowest() -> None:
    run = {**RL, "with": {"evaluation": "none", "stage": [1, 2], "arm": ["grpo", "grpo-roc"]}}
    assert names(sweep(run)) == [
        "seed0-grpo-stage1",
        "seed0-grpo-roc-stage1",
        "seed0-grpo-stage2",
        "seed0-grpo-roc-stage2",
    ]


@pytest.mark.usefixtures("quick")
def test_the_same_file_gives_the_same_tasks() -> None:
    one, other = (sweep(SFT, RL, seeds=[0, 1], arms=["grpo"]) for _ in range(2))
    assert one.tasks == other.tasks


@pytest.mark.usefixtures("quick")
def test_a_run_that_is_asked_for_twice_is_one_task() -> None:
    found = sweep(SFT, RL, SFT, seeds=[0, 0], arms=["grpo", "grpo"])
    assert names(found) == ["seed0-sft", "seed0-grpo"]
    assert [task.number for task in found.tasks] == [0, 1]


@pytest.mark.usefixtures("quick")
def test_two_sweeps_share_a_run_and_another_folder_is_another_run() -> None:
    one = sweep(SFT, RL, arms=["grpo"], name="one")
    other = sweep(RL, {**SFT, "with": {"evaluation": "book"}}, arms=["grpo"], name="other")
    assert one.plans[1] == other.plans[0]
    assert one.plans[0] == other.plans[1]
    elsewhere = sweep(SFT, out="elsewhere", name="elsewhere").plans[0]
    assert elsewhere.run_id == one.plans[0].run_id
    assert elsewhere.folder == Path.cwd() / "elsewhere" / one.plans[0].folder.name


@pytest.mark.usefixtures("quick")
def test_a_notebook_without_seed_and_arm_runs_once(checkout: Path) -> None:
    notebook("notes/once.ipynb", "x: int = 1")
    found = sweep({"notebook": "notes/once.ipynb"}, seeds=[0, 1, 2], arms=["grpo", "grpo-roc"])
    (task,) = found.tasks
    assert (task.plan.kind, task.plan.name) == (Kind.NOTEBOOK, "once")
    assert (task.arm, task.seed) == ("", None)
    assert task.plan.params == {"x": 1}
    assert task.plan.folder.parent == checkout / "runs"


@pytest.mark.usefixtures("quick")
def test_a_sweep_needs_neither_preset_nor_seeds_nor_arms() -> None:
    notebook("once.ipynb", "x: int = 1")
    Path("sweeps/x.yaml").write_text("runs: [{notebook: once.ipynb, with: {x: [1, 2]}}]")
    found = load_sweep("x")
    assert [plan.params for plan in found.plans] == [{"x": 1}, {"x": 2}]
    assert len({plan.run_id for plan in found.plans}) == 2


@pytest.mark.usefixtures("quick")
def test_what_the_file_says_of_a_run_goes_before_seeds_and_arms() -> None:
    run = {"notebook": "13_run_evaluation", "with": {"arm": "sft", "seed": 7}}
    (task,) = sweep(SFT, run, arms=["grpo"]).tasks[1:]
    assert (task.plan.name, task.arm, task.seed) == ("test-seed7-sft-evaluation", "sft", 7)


# --- arms of one's own --------------------------------------------------------------------

PLAIN = {"arm": "grpo-roc"}
HALF = {"arm": "grpo-roc", "changes": {"rl.epsilon": 0.5}}


@pytest.mark.usefixtures("quick")
def test_arms_of_ones_own_have_parameters_and_are_labels() -> None:
    found = sweep(SFT, RL, arms={"plain": PLAIN, "half": HALF})
    assert [task.arm for task in found.tasks] == ["sft", "plain", "half"]
    assert found.plans[2].params["changes"] == {"rl.epsilon": 0.5}
    assert found.plans[1].run_id != found.plans[2].run_id
    for plan in found.plans[1:]:
        assert plan.needs is not None
        assert plan.needs.folder == found.plans[0].folder


@pytest.mark.usefixtures("quick")
def test_the_run_that_all_arms_start_from_has_its_own_label_whichever_is_first() -> None:
    found = sweep(SFT, RL, arms={"half": HALF, "plain": PLAIN})
    assert [task.arm for task in found.tasks] == ["sft", "half", "plain"]


@pytest.mark.usefixtures("quick")
def test_an_arm_that_changes_the_sft_has_an_sft_of_its_own() -> None:
    arms = {"plain": PLAIN, "long": {"arm": "grpo-roc", "changes": {"sft.examples": 72}}}
    found = sweep(SFT, RL, arms=arms)
    assert [task.arm for task in found.tasks] == ["sft", "plain", "long", "long"]
    sfts = [found.plans[0].folder, found.plans[2].folder]
    assert [plan.chain[0].folder for plan in found.plans] == [sfts[0], sfts[0], sfts[1], sfts[1]]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("arms", [{"a": {"arm": "grpo", "changez": {}}}, {"a": {"sede": 1}}])
def test_a_parameter_of_an_arm_that_no_notebook_declares_is_refused(arms: dict[str, Any]) -> None:
    with pytest.raises(SweepError, match=r"x\.yaml: .*(changez|sede)"):
        sweep(SFT, RL, arms=arms)


# --- notebooks ----------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_a_notebook_is_found_by_its_name_or_its_path(checkout: Path) -> None:
    assert notebook_path("10_run_sft") == checkout / "notebooks" / "10_run_sft.ipynb"
    assert notebook_path("notebooks/10_run_sft.ipynb") == notebook_path("10_run_sft")
    for name in ("my notes/größer [1].ipynb", str(checkout.parent / "else where.ipynb")):
        path = notebook(name, "seed: int = 0")
        assert notebook_path(name) == path
        plans = sweep({"notebook": name}, seeds=[1, 2]).plans
        assert [plan.name for plan in plans] == [f"{path.stem}-seed1", f"{path.stem}-seed2"]


@pytest.mark.usefixtures("quick")
def test_a_text_notebook_is_read_through_jupytext(checkout: Path) -> None:
    text = '# Notes\n\n```{code-cell}\n:tags: ["parameters"]\nseed: int = 0\nrate = 0.5\n```\n'
    head = "---\njupytext:\n  text_representation: {extension: .md, format_name: myst}\n---\n"
    (checkout / "notes.md").write_text(head + text)
    found = sweep({"notebook": "notes.md", "with": {"rate": [0.1, 0.2]}}, seeds=[3])
    assert [plan.params for plan in found.plans] == [
        {"seed": 3, "rate": 0.1},
        {"seed": 3, "rate": 0.2},
    ]


@pytest.mark.usefixtures("quick")
def test_a_file_that_is_no_notebook_is_refused(checkout: Path) -> None:
    (checkout / "bad.ipynb").write_bytes(b"\xff{")
    (checkout / "bad.md").write_bytes(b"# \xff")
    for name in ("bad.ipynb", "bad.md", "pyproject.toml"):
        with pytest.raises(NotebookError, match=rf"{re.escape(name)} is no notebook: "):
            sweep({"notebook": name})


# --- what a file may not say --------------------------------------------------------------

RUN = "runs: [{notebook: 10_run_sft}]"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: "),
        ("# nothing\n", "x.yaml: "),
        ("[1]", "x.yaml: "),
        ("a: [1", "x.yaml cannot be read: "),
        (b"preset: \xff", "x.yaml cannot be read: 'utf-8' codec"),
        ("preset: test", "x.yaml: runs: Field required"),
        ("runs: []", "x.yaml: runs: "),
        (f"seeds: []\n{RUN}", "x.yaml: seeds: "),
        (f"arms: []\n{RUN}", "x.yaml: arms: "),
        (f"arms: {{}}\n{RUN}", "x.yaml: arms: "),
        (f"sedes: [1]\n{RUN}", "x.yaml: sedes: there is no such setting; they are description, "),
        ("runs: [{notebook: 10_run_sft, wiht: {}}]", "x.yaml: runs.0.wiht: there is no such"),
        ("runs: [{notebook: 10_run_sft, with: }]", "x.yaml: runs.0.with: "),
        (f"seeds: [x]\n{RUN}", "x.yaml: seeds.0: Input should be a valid integer"),
        (f"preset: test\nseeds: [-1]\n{RUN}", "seed is -1: give a number from 0"),
        (f"preset: test\narms: [1]\n{RUN}", "x.yaml: arms"),
        (f"preset: nope\n{RUN}", "there is no preset 'nope'; presets/ has: lab"),
        ("runs: [{notebook: nope}]", "there is no notebook 'nope': give a path, or one of 10_run_"),
        ("runs: [{notebook: notebooks}]", "there is no notebook 'notebooks'"),
        ("arms: [ppo]\nruns: [{notebook: 11_run_rl}]", "there is no arm 'ppo'; the arms are: grpo"),
        ("runs: [{notebook: 10_run_sft, with: {seed: x}}]", "seed is 'x'"),
        ("runs: [{notebook: 10_run_sft, with: {seed: 1.5}}]", "seed is 1.5"),
        ("runs: [{notebook: 10_run_sft, with: {seed: true}}]", "seed is True"),
        ("runs: [{notebook: 10_run_sft, with: {seed: null}}]", "seed is None"),
        ("runs: [{notebook: 10_run_sft, with: {sede: 1}}]", "has no parameter 'sede'; it has: pre"),
        ("runs: [{notebook: 10_run_sft, with: {changes: {rl.epsilom: 1}}}]", "mean epsilon?"),
        ("runs: [{notebook: 10_run_sft, with: {changes: {name: 2024-01-01}}}]", "is no text"),
        ("runs: [{notebook: 11_run_rl, with: {changes: {rl.epsilon: .nan}}}]", "a finite number"),
        ("runs: [{notebook: 11_run_rl, with: {stage: 9}}]", "stage is 9: preset test has stages 1"),
        ("runs: [{notebook: 13_run_evaluation, with: {evaluation: none}}]", "evaluation is none"),
    ],
)
def test_what_a_file_may_not_say(text: str | bytes, message: str) -> None:
    assert message in refused(text)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"preset: test\nseeds: [true]\n{RUN}", "a truth value is no seed"),
        (f"preset: test\nseeds: [1]\nseeds: [2]\n{RUN}", "one of two settings would be dropped"),
        ("runs: [{notebook: 10_run_sft, with: {seed: []}}]", "the run would be dropped"),
        ("runs: [{notebook: 10_run_sft, with: {out: else}}]", "the folder is the sweep's to say"),
        (f"runs: [{{notebook: {'x' * 300}}}]", "no system has such a name"),
    ],
)
def test_nothing_that_a_file_says_is_dropped_in_silence(text: str, why: str) -> None:
    assert refused(text).startswith(("x.yaml", "there is no notebook")), why


@pytest.mark.parametrize("name", ["nope", "", "sweeps", "a\0b", "x" * 300])
def test_an_unknown_sweep_is_told_which_there_are(name: str) -> None:
    for known in ("one", "two", "claims"):
        Path("sweeps", f"{known}.yaml").touch()
    with pytest.raises(SweepError, match=r"there is no sweep .*; sweeps/ has: one, two$"):
        load_sweep(name)


@pytest.mark.usefixtures("quick")
def test_a_sweep_may_lie_anywhere(tmp_path: Path, checkout: Path) -> None:
    expected = sweep(SFT)
    other = tmp_path / "mine.of 2.yml"
    other.write_bytes((checkout / "sweeps" / "x.yaml").read_bytes())
    found = load_sweep(str(other))
    assert found.name == "mine.of 2"
    assert found.tasks == expected.tasks
    assert load_sweep("sweeps/x.yaml").tasks == expected.tasks


# --- which of them ------------------------------------------------------------------------


@pytest.fixture
def chain(quick: None) -> Sweep:
    """Two seeds of an SFT run, two stages of it, and the evaluation of the second."""
    staged = {**RL, "with": {"evaluation": "none", "stage": [1, 2]}}
    last = {"notebook": "13_run_evaluation", "with": {"stage": 2}}
    first = {**SFT, "with": {"evaluation": "none"}}
    return sweep(first, staged, last, seeds=[0, 1], arms=["grpo"])


@pytest.mark.parametrize(
    ("only", "numbers"),
    [
        ([], [0, 1, 2, 3, 4, 5, 6, 7]),
        (["seed=1"], [4, 5, 6, 7]),
        (["arm=grpo"], [1, 2, 3, 5, 6, 7]),
        (["arm=sft"], [0, 4]),
        (["kind=rl", "seed=0"], [1, 2]),
        (["stage=2"], [2, 3, 6, 7]),
        (["evaluation=book"], [3, 7]),
    ],
)
def test_conditions_choose_tasks_and_keep_their_numbers(
    chain: Sweep, only: list[str], numbers: list[int]
) -> None:
    assert [task.number for task in select(chain, only)] == numbers


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("seed", "give name=value, the names: arm, "),
        ("", "give name=value, the names: arm, "),
        ("sede=1", "give name=value, the names: arm, .*kind, .*seed, stage"),
        ("seed=2", "no run has it; seed is 0, 1$"),
        ("arm=", "no run has it; arm is grpo, sft$"),
        ("arm=GRPO", "no run has it; arm is grpo, sft$"),
    ],
)
def test_a_condition_that_fits_nothing_says_what_would(
    chain: Sweep, condition: str, message: str
) -> None:
    with pytest.raises(UserError, match=f"--only {re.escape(condition)}: {message}"):
        select(chain, [condition])


def test_conditions_that_no_run_satisfies_together_are_refused(chain: Sweep) -> None:
    with pytest.raises(UserError, match="no run is of stage=1 and kind=evaluation"):
        select(chain, ["stage=1", "kind=evaluation"])


def test_what_tasks_need_comes_with_them_until_it_is_done(chain: Sweep) -> None:
    last = select(chain, ["kind=evaluation", "seed=1"])
    assert [task.number for task in with_needs(chain, last)] == [4, 5, 6, 7]
    is_done(chain.plans[4])
    is_done(chain.plans[5])
    assert [task.number for task in with_needs(chain, last)] == [6, 7]
    is_done(chain.plans[6])
    assert with_needs(chain, last) == last
    assert with_needs(chain, []) == []


def test_waves_of_a_chain(chain: Sweep) -> None:
    assert waves(chain.tasks) == ((0, 4), (1, 5), (2, 6), (3, 7))
    for number in (0, 1, 4):
        is_done(chain.plans[number])
    assert waves(chain.tasks) == ((5,), (2, 6), (3, 7))
    assert waves([]) == ()


@st.composite
def _forests(draw: Callable[[Any], Any]) -> list[tuple[int | None, bool]]:
    """Of each run, the one before that it needs, and whether it is done."""
    size = draw(st.integers(0, 12))
    return [
        (draw(st.none() | st.integers(0, number - 1)) if number else None, draw(st.booleans()))
        for number in range(size)
    ]


@given(forest=_forests())
def test_every_task_left_is_in_one_wave_after_what_it_needs(
    forest: list[tuple[int | None, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        plans: list[Plan] = []
        for number, (base, done) in enumerate(forest):
            path = Path(folder, f"run-{number}")
            needs = None if base is None else plans[base]
            plans.append(Plan(Kind.RL, "run", path, {}, f"{number}", path, needs=needs))
            if done:
                is_done(plans[-1])
        found = waves([Task(number, plan, "") for number, plan in enumerate(plans)])
    assert all(found), "no wave is empty"
    place = {number: at for at, wave in enumerate(found) for number in wave}
    assert sorted(place) == [number for number, (_, done) in enumerate(forest) if not done]
    assert sum(map(len, found)) == len(place), "each once"
    for number, (base, _) in enumerate(forest):
        if number in place and base in place:
            assert place[base] < place[number]
