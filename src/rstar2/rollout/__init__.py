"""Rollouts: the agent loop, the engine protocol and the engine of one machine."""

from rstar2.rollout.agent import RolloutLimits, ToolRunner, run_rollout
from rstar2.rollout.engine import Engine, SamplingParams, TokenOutput
from rstar2.rollout.torch_engine import TorchEngine

__all__ = [
    "Engine",
    "RolloutLimits",
    "SamplingParams",
    "TokenOutput",
    "ToolRunner",
    "TorchEngine",
    "run_rollout",
]
