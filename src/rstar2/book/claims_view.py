"""What was claimed and what became of it, as a table and a sentence of a chapter."""

from collections.abc import Sequence

from rstar2.book.rendered import Rendered, show_table
from rstar2.experiments.claims import Verdict
from rstar2.experiments.curves import show_estimate
from rstar2.experiments.outcomes import Outcome


def show_claims(found: Sequence[Outcome]) -> Rendered:
    """One row a claim: the paper, the effect with its 95% interval, the verdict and why.

    Raises:
        ValueError: There is no claim.
    """
    return show_table(
        [
            {
                "claim": one.claim.claim,
                "the paper": one.claim.paper,
                "found [95% interval]": show_estimate(
                    one.effect, one.claim.digits, signed=one.claim.minus is not None
                ),
                "seeds": len(one.values),
                "verdict": one.verdict.value,
                "why": one.why or "–",
            }
            for one in found
        ]
    )


def count_verdicts(found: Sequence[Outcome]) -> str:
    """How many claims got which verdict, as a sentence."""
    counts = {verdict: sum(one.verdict is verdict for one in found) for verdict in Verdict}
    told = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
    return f"Of {len(found)} claims: {told}." if found else "Nothing was claimed."
