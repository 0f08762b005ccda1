"""The integer grader beside math-verify: agreement with labels, time, and what raises.

Run ``python -m benchmarks.grading``. Both grade the same responses in the same run; math-verify
reads the whole response, as verl calls it, in processes that are killed when they are late.
"""
