"""How long the commands of a batch of 200 runs take.

Run ``python -m benchmarks.batch``. A sweep asks for 200 seeds of a notebook that does nothing;
run folders as a batch leaves them stand on disk: most runs are done, each with 20 steps of 10
metrics, the others were stopped, have failed or have not begun. Then ``rstar2 batch plan``,
``status`` and ``collect`` are timed as whole processes, and ``plan`` of the sweep of the
committed records too, whose run notebooks and preset decide more.
"""
