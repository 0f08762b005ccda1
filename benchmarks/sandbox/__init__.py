"""The sandbox beside a cold ``python -c``, its own fork, no jail, and code-judge.

Run ``python -m benchmarks.sandbox``. Arms that are compared take turns within one run, so
that a busy machine slows them alike; a bar is a ratio of such arms, or a count. Every answer
is checked: a wrong one ends the run.
"""
