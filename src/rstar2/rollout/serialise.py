"""Rollouts as JSON, for the sample trajectories of a run folder and the book."""

from dataclasses import asdict
from typing import Any

from rstar2.grading import Reason, Verdict
from rstar2.problems import Problem
from rstar2.protocol import CallStatus, StopReason, ToolCall, Trajectory, Turn
from rstar2.rollout.groups import Rollout


def rollout_to_json(rollout: Rollout) -> dict[str, Any]:
    """A dictionary of plain values."""
    return asdict(rollout)


def rollout_from_json(value: dict[str, Any]) -> Rollout:
    """The rollout that ``rollout_to_json`` wrote, perhaps after a journey through JSON."""
    path = value["trajectory"]
    turns = tuple(
        Turn(
            **{
                **turn,
                "calls": tuple(
                    ToolCall(**{**call, "status": CallStatus(call["status"])})
                    for call in turn["calls"]
                ),
            }
        )
        for turn in path["turns"]
    )
    sequences = ("prompt_ids", "response_ids", "response_mask", "log_probs")
    trajectory = Trajectory(
        request_id=path["request_id"],
        **{name: tuple(path[name]) for name in sequences},
        turns=turns,
        stop=StopReason(path["stop"]),
    )
    verdict = Verdict(**{**value["verdict"], "reason": Reason(value["verdict"]["reason"])})
    return Rollout(Problem(**value["problem"]), value["sample"], trajectory, verdict)
