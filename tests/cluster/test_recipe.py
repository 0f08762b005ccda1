"""The recipes compose onto verl's own configuration, and what they say lands where it is read."""

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch
import yaml
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.sft_trainer_ray import create_sft_dataset
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.import_utils import load_class_from_fqn, load_extern_object
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from rstar2.experiments.cluster.checkpoints import latest_step
from rstar2.experiments.cluster.cold_start import cold_start_settings
from rstar2.experiments.cluster.files import prepare
from rstar2.experiments.cluster.job import StageJob
from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.experiments.cluster.recipe import EVERYTHING, rl_settings
from rstar2.experiments.cluster.rows import problem_of
from rstar2.experiments.presets import VerlPreset, load_preset
from rstar2.experiments.sweeps import load_sweep
from rstar2.problems import Problem
from rstar2.protocol import PAPER, TokenTemplate
from rstar2.training.curriculum import _set_rate
from rstar2.training.sft_mix import (
    Call,
    Conversation,
    Message,
    Role,
    encode_conversation,
    rendered_messages,
    to_json,
)
from rstar2.training.spec import Arm
from rstar2.verl_plugin.router import RouterSpec
from rstar2.verl_plugin.train import composed

STRANGE = "a folder's {name}, with $ and [more]=1"
"""A place whose characters all mean something to Hydra."""


def verl_preset(name: str, changes: dict[str, Any] | None = None) -> VerlPreset:
    preset = load_preset(name, changes or {})
    assert isinstance(preset, VerlPreset)
    return preset


def sweep_jobs(folder: Path) -> Iterator[tuple[str, StageJob]]:
    """The stages of every arm of the sweeps of clusters, each as a job."""
    for sweep in ("mi300x-64", "mi300x-64-cot", "mi300x-64-32b", "one-gpu"):
        for task in load_sweep(sweep).tasks:
            params = task.plan.params
            if task.plan.kind != "rl" or params["seed"]:
                continue
            assert isinstance(task.plan.preset, VerlPreset)
            arm, stage = Arm(params["arm"]), params["stage"]
            job = StageJob(task.plan.preset, arm, stage, 7, folder / task.plan.name)
            yield f"{sweep}-{task.arm}-{stage}", job


JOBS = dict(sweep_jobs(Path("/runs") / STRANGE))


def config_of(job: StageJob, **changes: Any) -> DictConfig:
    return composed("ppo_trainer", rl_settings(job) | changes)


@pytest.fixture(scope="module", params=JOBS, ids=JOBS)
def job(request: pytest.FixtureRequest) -> StageJob:
    return JOBS[request.param]


@pytest.fixture(scope="module")
def config(job: StageJob) -> DictConfig:
    return config_of(job)


@pytest.fixture(scope="session")
def model_folder(
    tmp_path_factory: pytest.TempPathFactory,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
) -> Path:
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# --- RL: every preset, arm and stage --------------------------------------------------------


def test_the_sweeps_hold_every_arm_in_every_stage() -> None:
    stages = {"mi300x-64": (1, 2, 3), "one-gpu": (1, 2, 3), "mi300x-64-32b": (1, 2)}
    arms = {
        "mi300x-64": ("grpo", "grpo-roc"),
        "one-gpu": ("grpo", "grpo-roc"),
        "mi300x-64-32b": ("grpo-roc",),
    }
    wanted = {f"{name}-{arm}-{s}" for name in arms for arm in arms[name] for s in stages[name]}
    assert set(JOBS) == wanted | {f"mi300x-64-cot-dapo-cot-{stage}" for stage in (1, 2, 3)}


def test_verl_accepts_it(config: DictConfig) -> None:
    assert OmegaConf.is_struct(config)
    assert OmegaConf.missing_keys(config.actor_rollout_ref) == set()
    critic, reference = need_critic(config), need_reference_policy(config)
    assert (critic, reference) == (False, False)
    validate_config(config, reference, critic)


def test_verl_makes_its_own_types_of_it(config: DictConfig, model_folder: Path) -> None:
    """The actor, the engine below it, the servers and the model, from the settings of the job."""
    node = config.actor_rollout_ref
    actor = omega_conf_to_dataclass(node.actor)
    rollout = omega_conf_to_dataclass(node.rollout)
    with_model = OmegaConf.merge(node.model, {"path": str(model_folder)})
    model = omega_conf_to_dataclass(with_model)
    assert (actor.engine.strategy, actor.policy_loss.loss_mode) == ("fsdp2", "rstar2")
    assert (rollout.name, rollout.calculate_log_probs) == ("vllm", True)
    assert model.architectures == ["Qwen3ForCausalLM"]


def test_a_step_is_one_update_without_a_row_of_padding(job: StageJob, config: DictConfig) -> None:
    """By verl's own rule: a batch is padded to a multiple, and the update takes so many rows."""
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    assert ranks == job.preset.resources.gpus
    trainer = SimpleNamespace(config=config, use_critic=False, global_steps=1)
    multiple = PPOTrainer._get_required_batch_multiple(trainer, ranks)
    update = config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    assert multiple == update == job.rows
    assert job.rows == job.preset.rl.problems_per_step * job.preset.rl.group_size
    assert job.rows % ranks == 0


def test_what_the_preset_says_is_what_verl_reads(job: StageJob, config: DictConfig) -> None:
    preset, rl, stage = job.preset, job.preset.rl, job.spec
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert config.actor_rollout_ref.model.path == preset.model.path
    assert (config.data.train_batch_size, rollout.n) == (rl.problems_per_step, job.arm.samples(rl))
    assert rollout.prompt_length == preset.limits.max_prompt_tokens
    assert rollout.response_length == stage.max_response_tokens
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (0.2, 0.28)
    assert (actor.use_kl_loss, actor.entropy_coeff) == (False, 0)
    assert (actor.ppo_epochs, actor.use_dynamic_bsz) == (1, True)
    assert actor.ppo_max_token_len_per_gpu == rl.micro_batch_tokens
    assert rollout.log_prob_use_dynamic_bsz is True
    optim = omega_conf_to_dataclass(actor.optim)
    assert (optim.lr, optim.weight_decay, optim.clip_grad) == (1e-6, rl.weight_decay, rl.grad_clip)
    assert tuple(optim.betas) == rl.adam_betas
    assert (rollout.temperature, rollout.top_p) == (rl.temperature, preset.engine.top_p)
    assert rollout.tensor_model_parallel_size == preset.engine.tensor_parallel
    assert rollout.gpu_memory_utilization == preset.engine.gpu_memory_utilization
    assert rollout.max_model_len == preset.engine.max_model_len
    assert (rollout.calculate_log_probs, rollout.disable_log_stats) == (True, False)
    engine = omega_conf_to_dataclass(actor).engine
    assert (engine.param_offload, engine.optimizer_offload) == 2 * (preset.engine.offload,)
    assert (engine.model_dtype, engine.mixed_precision["param_dtype"]) == ("fp32", "bf16")
    assert config.algorithm.rollout_correction.bypass_mode is False, "recomputed by the trainer"
    trainer = config.trainer
    steps = sum(one.steps for one in preset.stages[: job.stage])
    assert (trainer.total_training_steps, trainer.total_epochs) == (steps, steps)
    assert (trainer.save_freq, trainer.resume_mode) == (rl.checkpoint_every, "auto")
    assert list(trainer.logger) == ["console", "file"]
    assert trainer.default_local_dir == str(job.folder / "checkpoints")
    assert STRANGE in trainer.project_name


def test_the_plugin_finds_its_settings(job: StageJob, config: DictConfig) -> None:
    spec = PluginSpec.of(config.rstar2)
    assert PluginSpec.of(config.trainer.v1.sampler.sampler_kwargs) == spec
    assert (spec.rl, spec.limits, spec.arm) == (job.preset.rl, job.preset.limits, job.arm)
    assert (spec.max_turns, spec.seed) == (job.spec.max_turns, 7)
    assert config.algorithm.normaliser == spec.rl.normaliser.value
    assert config.algorithm.adv_estimator == "rstar2"
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "rstar2"
    sampler = config.trainer.v1.sampler.custom_sampler
    assert load_extern_object(sampler.path, sampler.name).__name__ == "SelectingBuffer"


def test_a_place_that_verl_does_not_have_is_an_error() -> None:
    job = JOBS["one-gpu-grpo-roc-1"]
    for place in ("data.train_batch_sizes", "actor_rollout_ref.actor.clip_ratio_hi"):
        with pytest.raises(ConfigCompositionException, match=place):
            config_of(job, **{place: 1})


def test_another_precision_is_set_in_all_places(model_folder: Path) -> None:
    preset = verl_preset("one-gpu", {"model.dtype": "float32"})
    node = config_of(StageJob(preset, Arm.GRPO, 1, 0, Path("/runs"))).actor_rollout_ref
    engine = omega_conf_to_dataclass(node.actor).engine
    assert (engine.mixed_precision["param_dtype"], node.rollout.dtype) == ("fp32", "float32")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_rate_is_that_of_the_laptop(stage: int) -> None:
    """verl's scheduler, step by step through a stage, against the rate that our loop sets."""
    preset = verl_preset("mi300x-64")
    config = config_of(StageJob(preset, Arm.GRPO_ROC, stage, 0, Path("/runs")))
    given = omega_conf_to_dataclass(config.actor_rollout_ref.actor.optim)
    given.total_training_steps = config.trainer.total_training_steps
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    theirs, ours = (torch.optim.AdamW(parameters, lr=given.lr) for _ in range(2))
    engine = SimpleNamespace(optimizer_config=given, rank=1)
    scheduler = FSDPEngine._build_lr_scheduler(engine, theirs)
    fresh = preset.stages[stage - 1].reset_optimizer
    first = sum(one.steps for one in preset.stages[: stage - 1])
    if not fresh:  # the state of the schedule goes on
        for _ in range(first):
            theirs.step()
            scheduler.step()
    for step in range(first, first + 40):
        _set_rate(ours, preset.rl, step)
        assert theirs.param_groups[0]["lr"] == pytest.approx(ours.param_groups[0]["lr"])
        theirs.step()
        scheduler.step()


# --- a stage's folder -----------------------------------------------------------------------

POOL = [
    Problem(f"dapo/{n}", f'How much is {n} + "1"?\n', 10**30 * (-1) ** n + n, "dapo-17k")
    for n in range(60)
]


def small_job(folder: Path, stage: int = 1) -> StageJob:
    """The one-GPU preset, whose batch takes 32 problems."""
    return StageJob(verl_preset("one-gpu"), Arm.GRPO_ROC, stage, 3, folder)


def finish(job: StageJob, step: int) -> Path:
    """What verl leaves of a step."""
    folder = job.checkpoints / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"weights")
    (folder / "data.pt").write_bytes(b"place")
    (job.checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step))
    return folder


def test_verl_reads_the_problems_and_the_loop_gets_them_back(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    job = small_job(tmp_path / "a folder's {name}")  # its reader takes [ and * for patterns
    prepare(job, POOL, None)
    config = config_of(job)
    data = create_rl_dataset(config.data.train_files, config.data, tokenizer, None)
    batch = collate_fn([data[index] for index in range(len(data))])
    rows = [{name: column[i] for name, column in batch.items()} for i in range(len(data))]
    assert sorted(map(problem_of, rows), key=lambda one: one.problem_id) == sorted(
        POOL, key=lambda one: one.problem_id
    )
    assert {row["agent_name"] for row in rows} == {"rstar2"}
    assert [row["index"] for row in rows] == list(range(60))


def test_the_router_reads_its_file(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    prepare(job, POOL, None)
    told = yaml.safe_load(job.router_file.read_text())
    name = told.pop("router_class")
    spec = RouterSpec.model_validate(told)
    assert (spec.kv_tokens, spec.max_tokens) == (job.preset.engine.kv_tokens, 2048 + 3072)
    assert isinstance(load_class_from_fqn(name), ray.actor.ActorClass), "verl would decorate it"


def test_verl_goes_on_from_the_stage_before(tmp_path: Path) -> None:
    """Its rule is to look for the last checkpoint of its own folder."""
    one, two, three = (small_job(tmp_path / str(stage), stage) for stage in (1, 2, 3))
    assert prepare(one, POOL, None) == EVERYTHING
    assert find_latest_ckpt_path(str(one.checkpoints)) is None
    finish(one, 120)

    assert prepare(two, POOL, one.checkpoints) == EVERYTHING
    found = find_latest_ckpt_path(str(two.checkpoints))
    assert found is not None
    assert (Path(found).name, latest_step(two.checkpoints)) == ("global_step_120", 120)
    assert (Path(found) / "actor" / "model_world_size_1_rank_0.pt").read_bytes() == b"weights"
    assert (Path(found) / "data.pt").read_bytes() == b"place"
    finish(two, 160)

    # Hard problems and a fresh optimizer: neither the place in the data nor AdamW's state.
    assert prepare(three, POOL, two.checkpoints) == ("model",)
    found = find_latest_ckpt_path(str(three.checkpoints))
    assert found is not None
    assert not (Path(found) / "data.pt").exists()
    config = composed("ppo_trainer", rl_settings(three, ("model",)))
    checkpoint = omega_conf_to_dataclass(config.actor_rollout_ref.actor.checkpoint)
    assert (list(checkpoint.load_contents), list(checkpoint.save_contents)) == (
        ["model"],
        list(EVERYTHING),
    )
    finish(three, 170)
    assert prepare(three, POOL, two.checkpoints) == EVERYTHING
    assert (one.checkpoints / "global_step_120" / "data.pt").exists()


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_a_fresh_optimizer_takes_the_weights_bit_for_bit_and_nothing_else(
    tmp_path: Path, model: Qwen3ForCausalLM
) -> None:
    """Shards that verl writes of FSDP2 modules, read by verl through the link of the next stage."""
    two, three = (small_job(tmp_path / str(stage), stage) for stage in (2, 3))
    trained, optimizer = sharded(model)
    for parameter in trained.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    actor = two.checkpoints / "global_step_160" / "actor"
    manager(trained, optimizer, EVERYTHING).save_checkpoint(str(actor), global_step=160)
    (two.checkpoints / "latest_checkpointed_iteration.txt").write_text("160")

    load = prepare(three, POOL, two.checkpoints)
    latest = find_latest_ckpt_path(str(three.checkpoints))
    fresh, fresh_optimizer = sharded(model)
    manager(fresh, fresh_optimizer, load).load_checkpoint(f"{latest}/actor")
    for ours, theirs in zip(fresh.parameters(), trained.parameters(), strict=True):
        assert torch.equal(ours.full_tensor(), theirs.full_tensor())
    assert not torch.equal(next(fresh.parameters()).full_tensor(), next(model.parameters()))
    assert (len(optimizer.state) > 0, len(fresh_optimizer.state)) == (True, 0)


def sharded(model: Qwen3ForCausalLM) -> tuple[Any, torch.optim.AdamW]:
    """A copy of a model as an FSDP2 module, with its optimizer."""
    module = fully_shard(copy.deepcopy(model), mesh=init_device_mesh("cpu", (1,)))
    return module, torch.optim.AdamW(module.parameters(), lr=1e-2)


def manager(
    module: Any, optimizer: torch.optim.AdamW, load: Sequence[str]
) -> FSDPCheckpointManager:
    """verl's, as its engine makes it."""
    contents = {"save_contents": list(EVERYTHING), "load_contents": list(load)}
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    return FSDPCheckpointManager(
        module, optimizer, schedule, None, checkpoint_config=OmegaConf.create(contents)
    )


# --- the cold start -------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
TALK = [
    Conversation(
        (Message(Role.USER, "How much is 6 times 7?"), Message(Role.ASSISTANT, "It is 42."))
    ),
    Conversation(
        (
            Message(Role.SYSTEM, "Be brief."),
            Message(Role.USER, "Divide by zero."),
            Message(Role.ASSISTANT, "I try.", (Call("look_up", {"a": 1}), Call("look_up", {}))),
            Message(Role.TOOL, "an error with <|im_end|> in it"),
            Message(Role.TOOL, "nothing"),
            Message(Role.ASSISTANT, "It cannot be done."),
            Message(Role.USER, "So?"),
            Message(Role.ASSISTANT, "42."),
        ),
        (TOOL,),
    ),
]


@pytest.fixture(scope="module", params=["mi300x-64", "one-gpu"])
def cold_start(request: pytest.FixtureRequest) -> tuple[VerlPreset, DictConfig]:
    preset = verl_preset(request.param)
    settings = cold_start_settings(preset, 5, Path("/runs") / STRANGE)
    return preset, composed("sft_trainer_engine", settings)


def test_verl_accepts_the_cold_start(
    cold_start: tuple[VerlPreset, DictConfig], model_folder: Path
) -> None:
    preset, config = cold_start
    sft = preset.sft
    assert sft is not None
    assert OmegaConf.is_struct(config)
    engine = omega_conf_to_dataclass(config.engine)
    optim = omega_conf_to_dataclass(config.optim)
    checkpoint = omega_conf_to_dataclass(config.checkpoint)
    omega_conf_to_dataclass(OmegaConf.merge(config.model, {"path": str(model_folder)}))
    omega_conf_to_dataclass(config.profiler)
    assert (engine.strategy, engine.model_dtype) == ("fsdp2", "fp32")
    assert (optim.lr, optim.lr_warmup_steps_ratio) == (sft.learning_rate, sft.warmup_share)
    assert optim.lr_scheduler_type == sft.schedule
    assert "hf_model" in checkpoint.save_contents
    assert config.data.train_batch_size == sft.batch_size
    assert config.data.max_token_len_per_gpu == sft.micro_batch_tokens
    assert (config.trainer.total_epochs, config.trainer.save_freq) == (
        sft.epochs,
        sft.checkpoint_every,
    )


def test_verls_loader_gives_our_ids_and_our_mask(
    cold_start: tuple[VerlPreset, DictConfig], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    _, config = cold_start
    file = tmp_path / "mix.jsonl"
    file.write_text("".join(json.dumps(to_json(one)) + "\n" for one in TALK))
    data = create_sft_dataset([str(file)], config.data, tokenizer, None)
    batch = SFTTensorCollator(config.data.pad_mode)([data[index] for index in range(len(data))])
    ours = [encode_conversation(one, TokenTemplate(tokenizer, PAPER)) for one in TALK]
    assert [tuple(row.tolist()) for row in batch["input_ids"]] == [one.ids for one in ours]
    assert [tuple(row.tolist()) for row in batch["loss_mask"]] == [one.mask for one in ours]
    assert [row.tolist() for row in batch["position_ids"]] == [
        list(range(len(one.ids))) for one in ours
    ]


def test_verls_own_data_set_would_teach_something_else(
    cold_start: tuple[VerlPreset, DictConfig], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Why there is a class of ours.

    Theirs takes the primed <reason> for a part of every answer and leaves the token in its place
    out of the loss, counts the line break that the template adds, and refuses answers of tools.
    """
    _, config = cold_start
    files = []
    for number, one in enumerate(TALK):
        files.append(tmp_path / f"{number}.parquet")
        table = pa.Table.from_pylist([{"messages": rendered_messages(one)}])
        pq.write_table(table, files[-1])
    theirs = MultiTurnSFTDataset([str(files[0])], tokenizer, config.data)[0]
    ours = encode_conversation(TALK[0], TokenTemplate(tokenizer, PAPER))
    assert counted(tokenizer, ours.ids, ours.mask) == "It is 42.<|im_end|>"
    told = counted(tokenizer, theirs["input_ids"].tolist(), theirs["loss_mask"].tolist())
    assert told == "t is 42.<|im_end|>\n"
    with pytest.raises(AssertionError, match="may not equal"):
        MultiTurnSFTDataset([str(files[1])], tokenizer, config.data)[0]


def counted(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int], mask: Sequence[int]) -> str:
    """The text that the loss is on."""
    kept = [token for token, bit in zip(ids, mask, strict=True) if bit]
    return str(tokenizer.decode(kept, skip_special_tokens=False))
