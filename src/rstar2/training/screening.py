"""The two rules that choose problems by how often a policy solves them."""


def label_holds(correct: int, least: int) -> bool:
    """Whether a label is believed: enough samples of a strong model match it.

    Args:
        correct: Samples that match the label.
        least: Fewest that must; 2 of 16 in the paper (section 4.2).
    """
    return correct >= least


def is_hard(correct: int, most: int) -> bool:
    """Whether a problem is left to learn: the policy does not solve it too often.

    Args:
        correct: Rollouts that are right.
        most: Most that may be; 7 of 8 in the paper (section 4.3), which drops what is solved
            every time.
    """
    return correct <= most
