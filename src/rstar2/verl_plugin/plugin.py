"""Tells verl of our parts; verl imports it in every process, by the entry point ``verl.plugins``.

The replay buffer is not registered: verl's configuration names it by its path, as the router's
file does ``RouterActor``.
"""

import ray
import verl

from rstar2.experiments.cluster.recipe import VERL
from rstar2.verl_plugin.objective import summed_policy_loss, weighted_advantages
from rstar2.verl_plugin.router import CONCURRENCY, Router

NAME = "rstar2"
"""Of the estimator, the loss and the loop in verl's registries."""

RouterActor = ray.remote(max_concurrency=CONCURRENCY)(Router)
"""The router as verl takes it: decorated, so that verl does not do it with less concurrency."""


def _register() -> None:
    if verl.__version__ != VERL:
        raise ImportError(
            f"rstar2 was written and tested for verl {VERL}, and this is verl "
            f"{verl.__version__}: install verl=={VERL}"
        )
    from verl.experimental.agent_loop.agent_loop import register
    from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

    from rstar2.verl_plugin.agent_loop import RStarLoop

    register_adv_est(NAME)(weighted_advantages)
    register_policy_loss(NAME)(summed_policy_loss)
    register(NAME)(RStarLoop)


_register()
