"""Grading: integers exactly, with a reason for every verdict."""

from rstar2.grading.grader import Message, Response, grade
from rstar2.grading.number import parse_integer
from rstar2.grading.verdict import BadGold, Reason, Verdict

__all__ = ["BadGold", "Message", "Reason", "Response", "Verdict", "grade", "parse_integer"]
