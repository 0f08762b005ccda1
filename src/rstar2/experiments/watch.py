"""What the collapse monitor says of a run, as it trains and when it is done."""

from rstar2.experiments.plans import Kind, Plan
from rstar2.records import RunFolder
from rstar2.training.monitor import Alarm, alarms


def alarms_of(plan: Plan) -> tuple[Alarm, ...]:
    """The warnings of a run of RL, in the order in which they sounded; none of another run.

    Raises:
        RecordError: The metrics log cannot be read.
    """
    return alarms(RunFolder(plan.folder).metrics.rows()) if plan.kind is Kind.RL else ()


def warning(plan: Plan) -> str:
    """The last of them as a line for people; empty if there is none.

    Raises:
        RecordError: As ``alarms_of``.
    """
    sounded = alarms_of(plan)
    return f"the monitor warns: {sounded[-1].message}" if sounded else ""
