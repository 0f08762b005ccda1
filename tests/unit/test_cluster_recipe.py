"""What verl is told, as far as it can be seen without verl; tests/cluster composes it."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rstar2.experiments.cluster.checkpoints import (
    begin_from,
    latest_step,
    trained_model,
)
from rstar2.experiments.cluster.cold_start import cold_start_settings
from rstar2.experiments.cluster.job import RecipeError, StageJob
from rstar2.experiments.cluster.recipe import (
    overrides,
    rl_settings,
    router_settings,
)
from rstar2.experiments.cluster.rows import drawn, write_problem_rows
from rstar2.experiments.manifests import PAPER_NO_TOOL
from rstar2.experiments.presets import VerlPreset, load_preset
from rstar2.problems import Problem
from rstar2.protocol import PAPER
from rstar2.training.spec import Arm


def verl_preset(name: str = "one-gpu", changes: dict[str, Any] | None = None) -> VerlPreset:
    preset = load_preset(name, changes or {})
    assert isinstance(preset, VerlPreset)
    return preset


def job_of(folder: Path, stage: int = 1, **changes: Any) -> StageJob:
    return StageJob(verl_preset(changes=changes), Arm.GRPO_ROC, stage, 0, folder)


# --- settings -------------------------------------------------------------------------------


def test_settings_are_words_of_hydra() -> None:
    told = {
        "a.b": None,
        "c": True,
        "d": 1e-6,
        "e": ["it's", 2],
        "+f": {"g": "${h.i}", "j": False},
    }
    assert overrides(told) == [
        "a.b=null",
        "c=true",
        "d=1e-06",
        "e=['it\\'s',2]",
        "+f={g:'${h.i}',j:false}",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rl.minibatches": 2}, "rl.minibatches: on a cluster a step is one update: give 1"),
        ({"rl.overlong_filtering": True}, "rl.overlong_filtering: on a cluster verl has no place"),
        ({"rl.problems_per_step": 3}, "a batch of 24 rollouts is no multiple of the 16 sampled"),
        (
            {"resources.gpus_per_node": 3},
            "a batch of 256 rollouts is no multiple of 3 GPUs: change rl.problems_per_step",
        ),
        ({"stages.0.steps": 0}, "stage 1 has no step to train"),
    ],
)
def test_what_verl_cannot_train_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as refused:
        job_of(Path("/runs"), **changes)
    assert str(refused.value).startswith("preset one-gpu: ")


def test_there_are_as_many_stages_as_the_preset_has() -> None:
    with pytest.raises(RecipeError, match=r"stage is 4: preset one-gpu has stages 1 to 3"):
        job_of(Path("/runs"), 4)


def test_steps_are_counted_through_all_stages() -> None:
    jobs = [job_of(Path("/runs"), stage) for stage in (1, 2, 3)]
    assert [(job.first_step, job.last_step) for job in jobs] == [(0, 120), (120, 160), (160, 200)]


@pytest.mark.parametrize(
    ("arm", "samples", "rows"),
    [(Arm.GRPO, 8, 256), (Arm.GRPO_ROC, 16, 256), (Arm.GRPO_2G, 16, 512)],
)
def test_an_update_takes_what_an_arm_keeps(arm: Arm, samples: int, rows: int) -> None:
    job = StageJob(verl_preset(), arm, 1, 0, Path("/runs"))
    told = rl_settings(job)
    assert (job.rows, told["actor_rollout_ref.rollout.n"]) == (rows, samples)
    assert told["actor_rollout_ref.actor.ppo_mini_batch_size"] * samples == rows


def test_groups_are_replaced_one_by_one(tmp_path: Path) -> None:
    refills = rl_settings(job_of(tmp_path, **{"rl.refill": True, "rl.max_refills": 2}))
    assert refills["data.gen_batch_size"] == 1
    assert rl_settings(job_of(tmp_path))["data.gen_batch_size"] is None


def test_every_start_writes_metrics_to_a_file_of_its_own(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    assert rl_settings(job)["trainer.experiment_name"] == "session-001"
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "session-001.jsonl").touch()
    assert rl_settings(job)["trainer.experiment_name"] == "session-002"


def test_the_router_knows_the_longest_rollout_of_the_stage(tmp_path: Path) -> None:
    longest = [router_settings(job_of(tmp_path, stage))["max_tokens"] for stage in (1, 2)]
    assert longest == [2048 + 3072, 2048 + 4096]


def test_the_manifest_without_a_tool_is_the_papers_but_for_the_tool() -> None:
    assert verl_preset(changes={"manifest": "paper-no-tool"}).texts is PAPER_NO_TOOL
    assert PAPER.system.startswith(PAPER_NO_TOOL.system)
    assert PAPER_NO_TOOL.system.endswith("<answer> answer here </answer>.")
    assert "tool" not in PAPER_NO_TOOL.system_text().lower()
    assert (PAPER_NO_TOOL.question, PAPER_NO_TOOL.tool_name) == (PAPER.question, "")


# --- problems -------------------------------------------------------------------------------

POOL = [Problem(f"set/{n}", f"{n}?", 10**40 + n, "set") for n in range(40)]


def test_the_problems_of_a_run_depend_on_the_pool_alone() -> None:
    some = drawn(POOL, 10)
    assert len(set(some)) == 10
    assert some == drawn(POOL[::-1], 10) == drawn(POOL, 20)[:10]
    assert some != POOL[:10]
    assert sorted(drawn(POOL, 99), key=POOL.index) == POOL


def test_an_answer_may_be_larger_than_any_column_of_integers(tmp_path: Path) -> None:
    write_problem_rows(tmp_path / "problems.parquet", POOL, 32)
    (first, *_) = pq.read_table(tmp_path / "problems.parquet").to_pylist()
    assert first["reward_model"]["ground_truth"] == str(10**40)
    assert first["prompt"] == [{"role": "user", "content": "0?"}]


def test_a_pool_must_fill_a_batch(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="40 problems do not fill a batch of 41"):
        write_problem_rows(tmp_path / "problems.parquet", POOL, 41)


# --- checkpoints ----------------------------------------------------------------------------


def leave(checkpoints: Path, step: int) -> None:
    """What verl leaves after a step."""
    (checkpoints / f"global_step_{step}" / "actor").mkdir(parents=True)
    (checkpoints / f"global_step_{step}" / "data.pt").touch()
    (checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step))


def test_a_later_stage_needs_the_end_of_the_one_before(tmp_path: Path) -> None:
    two, before = job_of(tmp_path / "2", 2), tmp_path / "1" / "checkpoints"
    with pytest.raises(RecipeError, match="stage 2 begins where stage 1 ended: name it"):
        begin_from(two, None)
    with pytest.raises(RecipeError, match="has come to step None, and stage 2 begins after step"):
        begin_from(two, before)
    leave(before, 110)
    with pytest.raises(RecipeError, match="has come to step 110, and stage 2 begins after step 12"):
        begin_from(two, before)
    leave(before, 120)
    begin_from(two, before)
    assert latest_step(two.checkpoints) == 120
    begin_from(two, None)  # it has begun, and no longer needs it


def test_an_interrupted_beginning_is_begun_again(tmp_path: Path) -> None:
    two, before = job_of(tmp_path / "2", 2), tmp_path / "1" / "checkpoints"
    leave(before, 120)
    begin_from(two, before)
    (two.checkpoints / "latest_checkpointed_iteration.txt").unlink()
    begin_from(two, before)
    assert latest_step(two.checkpoints) == 120


@pytest.mark.parametrize("text", ["130", "", "last"])
def test_a_file_that_names_no_checkpoint_is_not_passed_over(tmp_path: Path, text: str) -> None:
    """verl itself would begin from nothing, with a line in its log."""
    leave(tmp_path, 120)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    with pytest.raises(RecipeError, match=f"names step '{text}', which has no checkpoint"):
        latest_step(tmp_path)


# --- the cold start -------------------------------------------------------------------------


def test_rl_begins_from_the_last_model_of_the_cold_start(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="holds no model of a cold start: run that to its end"):
        trained_model(tmp_path)
    leave(tmp_path, 500)
    with pytest.raises(RecipeError, match="holds no model of a cold start"):
        trained_model(tmp_path)
    model = tmp_path / "global_step_500" / "huggingface"
    model.mkdir()
    (model / "model.safetensors").touch()
    assert trained_model(tmp_path) == model


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("mi300x-64-32b", {}, "preset mi300x-64-32b has no SFT"),
        ("one-gpu", {"sft.schedule": "linear"}, "sft.schedule: verl has cosine and constant"),
        ("mi300x-64", {"sft.batch_size": 100}, "sft.batch_size is 100, no multiple of 64 GPUs"),
    ],
)
def test_what_verls_sft_cannot_do_is_one_line(
    name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        cold_start_settings(verl_preset(name, changes), 0, Path("/runs"))
