"""Our engine and update beside TRL's trainer, beside our own first code, and beside matmul.

Run ``python -m benchmarks.training`` after ``make peers``. Each side is a process of its own with
one thread and float32; sides that are compared take turns on the same work, and what is compared
is CPU seconds. Work that turns out not to be the same ends the run.
"""
