"""``--only name=value``: which of some things are meant."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rstar2.errors import UserError

_Thing = TypeVar("_Thing")


class ConditionError(UserError):
    """A condition has no such form, or nothing satisfies it."""


def satisfying(
    things: Sequence[tuple[_Thing, Mapping[str, Any]]], only: Sequence[str], what: str
) -> list[_Thing]:
    """The things that satisfy every condition, in their order.

    Args:
        things: Each with the facts that conditions are held against.
        only: Conditions ``name=value``; a value is compared as text.
        what: What the things are called, as ``run``.

    Raises:
        ConditionError: If a condition has no such form, no thing has such a name or value, or
            none satisfies all.
    """
    for condition in only:
        name, equals, value = condition.partition("=")
        names = sorted({key for _, facts in things for key in facts})
        if not equals or name not in names:
            given = f"--only {condition}"
            raise ConditionError(f"{given}: give name=value, the names: {', '.join(names)}")
        values = sorted({str(facts[name]) for _, facts in things if name in facts})
        if value not in values:
            raise ConditionError(
                f"--only {condition}: no {what} has it; {name} is {', '.join(values)}"
            )
    wanted = [condition.partition("=")[::2] for condition in only]
    chosen = [
        thing
        for thing, facts in things
        if all(name in facts and str(facts[name]) == value for name, value in wanted)
    ]
    if only and not chosen:
        raise ConditionError(f"no {what} is of {' and '.join(only)}")
    return chosen
