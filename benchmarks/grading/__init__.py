"""The integer grader beside math-verify: agreement with labels, time, and what raises.

Run ``python -m benchmarks.grading``. Both grade all labelled cases. Ours is timed on all
responses, one after another, by what its thread computes. math-verify is timed on the first few
of them, by the clock: it reads the whole response, as verl calls it, in two processes at once
that are killed when they are late. So its times hold what the machine did besides, and one that
is late counts as the deadline.
"""
