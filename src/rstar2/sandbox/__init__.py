"""The Python tool: programs of the model run here, each in a process of its own.

    async with Sandbox(SandboxLimits(memory_mib=512)) as sandbox:
        result = await sandbox.run("print(6 * 7)", timeout=2.0)

A warm interpreter (the *zygote*) is started once and forks one child per call, so a
``print`` costs milliseconds. ``pool``, ``process`` and ``result`` are the side of the
caller; ``zygote``, ``jail``, ``kernel`` and ``program`` run on the other side, and ``wire``
is what the two say to each other.

What is not covered: there is no system-call filter and no Landlock. Calls in flight share
one limit on processes and one scratch file system, where a program that looks for another's
directory finds it. On the rung ``limits`` (a machine that allows no namespaces) the
network and the user's files stay in reach. ``Sandbox.isolation`` says what is in force.
"""

from rstar2.sandbox.limits import SandboxLimits, SandboxUnavailable, SandboxUnsupported
from rstar2.sandbox.pool import Isolation, Sandbox
from rstar2.sandbox.wire import Rung

__all__ = [
    "Isolation",
    "Rung",
    "Sandbox",
    "SandboxLimits",
    "SandboxUnavailable",
    "SandboxUnsupported",
]
