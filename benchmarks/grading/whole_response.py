r"""The script of a math-verify process: the whole response goes in, as in verl's reward.

verl's ``math_verify.compute_score`` wraps the gold answer in ``\boxed{}`` and gives the whole
text to ``math_metric``, which looks for LaTeX and for plain numbers. It has an alarm of its
own, five seconds for each step; the pool's deadline ends what outlives it.
"""

from collections.abc import Sequence

from rstar2.grading.expression_worker import Answer, serve


def load() -> Answer:
    """Load math-verify and give the function that grades."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, math_metric

    score = math_metric(
        gold_extraction_target=(LatexExtractionConfig(),),
        pred_extraction_target=(ExprExtractionConfig(), LatexExtractionConfig()),
    )

    def answer(question: Sequence[str]) -> str:
        gold, response = question
        try:
            points, _ = score([rf"\boxed{{{gold}}}"], [response])
        except Exception:  # any: verl's function counts what raises as wrong
            return "wrong"
        return "correct" if points == 1 else "wrong"

    answer((r"\frac{1}{2}", r"so the answer is $\boxed{0.5}$"))
    return answer


if __name__ == "__main__":
    serve(load)
