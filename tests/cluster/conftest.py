"""The parts of verl that need no GPU: Ray, its queue and its configuration.

Without verl, which has an environment of its own, nothing here is collected.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from tiny import tiny_policy, tiny_tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.protocol import LAPTOP, TokenTemplate

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE with the protocol's tags."""
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def template(tokenizer: PreTrainedTokenizerFast) -> TokenTemplate:
    """The template of the laptop's manifest."""
    return TokenTemplate(tokenizer, LAPTOP)


@pytest.fixture(scope="session")
def model(tokenizer: PreTrainedTokenizerFast, template: TokenTemplate) -> Qwen3ForCausalLM:
    """A ``Qwen3ForCausalLM`` with fresh weights, in 64 bits: two ways of adding differ by less."""
    return tiny_policy(tokenizer, template.end_id).double()


@pytest.fixture(scope="session")
def verl_config() -> Any:
    """verl's default configuration with our names in it, as a ``DictConfig``."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                "algorithm.adv_estimator=rstar2",
                "+algorithm.normaliser=batch",
                "actor_rollout_ref.actor.policy_loss.loss_mode=rstar2",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.actor.use_dynamic_bsz=true",
                "actor_rollout_ref.actor.clip_ratio_low=0.2",
                "actor_rollout_ref.actor.clip_ratio_high=0.28",
                "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            ],
        )


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """Ray on this machine, whose cores it counts more than once."""
    import ray

    ray.init(
        num_cpus=16, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def queue(ray_here: None, verl_config: Any) -> Iterator[Any]:
    """A TransferQueue."""
    import transfer_queue

    transfer_queue.init(verl_config.transfer_queue)
    yield transfer_queue
    transfer_queue.close()
