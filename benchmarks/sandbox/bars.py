"""The bars of the sandbox."""

from benchmarks.report import Bar

LIBRARIES = ("numpy", "scipy", "sympy")
"""Packages whose versions decide the numbers."""


def bars(slots: int) -> tuple[Bar, ...]:
    """List the bars of a sandbox with so many slots."""
    fds = 64 + 4 * slots
    return (
        Bar("print_over_fork_floor", 2.5, "print, full tier, over a bare fork of its zygote"),
        Bar("bare_print_cpu_over_cold", 0.25, "CPU of a print over that of python -c"),
        Bar("jail_over_nojail", 1.15, "time in the jail over time without, worst of three"),
        Bar("print_rate_over_cold", 4, "prints a second over python -c", at_least=True),
        Bar("sympy_rate_over_cold", 25, "sympy solves a second over python -c", at_least=True),
        Bar("print_rate_over_codejudge", 3, "prints a second over code-judge", at_least=True),
        Bar("sympy_rate_over_codejudge", 12, "sympy solves a second over it", at_least=True),
        Bar("pending_bytes", 1600, "memory of a waiting call beside its program, bytes"),
        Bar("pending_wrong", 0, "of 45,000 calls at once, those that went wrong"),
        Bar("pending_fds", fds, "file descriptors at most meanwhile"),
        Bar("chaos_visible_failures", 0, "failed calls of 600 while zygotes are killed"),
        Bar("chaos_orphans", 0, "processes that outlive a killed zygote"),
        Bar("fair_false_timeouts", 0, "of 12 jobs at once, timeouts that were not theirs"),
        Bar("sleeper_killed_s", 1.2, "seconds until a sleeper's timeout of 1 s is known"),
        Bar("http_cpu_ms_batch32", 0.05, "CPU of the HTTP service per call in batches of 32, ms"),
    )
