"""A rollout condensed to what is counted of it, for whoever looks at many and keeps few.

A step on a cluster has 16,384 rollouts, and a selection looks at all of them before most are
dropped. Condensed, they are what ``rollout_to_json`` writes, but for two things:

- Of the response's token sequences one entry each is left, which holds the sum: model tokens in
  the mask, their log-prob in ``log_probs``. All that is counted of a trajectory is such a sum.
  ``prompt_ids`` is empty, ``response_ids`` a lone 0.
- Texts are left out: question, turns, calls and their responses, box. No rule of selection and
  no metric reads them; what was read of them stands in statuses, tags and the verdict.

So ``select_group`` and ``step_metrics`` work on what comes back, and say the same.
"""

import json
from dataclasses import replace

from rstar2.protocol import ToolCall, Trajectory, Turn
from rstar2.rollout.groups import Rollout
from rstar2.rollout.serialise import rollout_from_json, rollout_to_json


def condensed(rollout: Rollout) -> str:
    """A rollout, condensed, as JSON."""
    short = replace(
        rollout,
        problem=replace(rollout.problem, question=""),
        trajectory=_sums(rollout.trajectory),
        verdict=replace(rollout.verdict, box=""),
    )
    return json.dumps(rollout_to_json(short), separators=(",", ":"))


def from_condensed(told: str) -> Rollout:
    """The rollout of which :func:`condensed` told, without what it leaves out."""
    return rollout_from_json(json.loads(told))


def _sums(path: Trajectory) -> Trajectory:
    return replace(
        path,
        prompt_ids=(),
        response_ids=(0,),
        response_mask=(path.num_model_tokens,),
        log_probs=(sum(path.log_probs),),
        turns=tuple(
            Turn("", turn.num_tokens, tuple(_outcome(c) for c in turn.calls), turn.answer_tags)
            for turn in path.turns
        ),
    )


def _outcome(call: ToolCall) -> ToolCall:
    return ToolCall(raw="", status=call.status)
