"""The Python tool: programs of the model run here, each in a process of its own.

    async with Sandbox(SandboxLimits(memory_mib=512)) as sandbox:
        result = await sandbox.run("print(6 * 7)", timeout=2.0)

A warm interpreter (the *zygote*) is started once and forks one child per call, so a
``print`` costs milliseconds. Where to read:

- this side of the walls: ``pool`` (slots, retries, the rung), ``backend`` and ``fleet`` (zygotes
  of each tier), ``process`` (one of them), ``calls`` and ``result`` (from what a child left to
  a ``ToolResult``), ``session``;
- the other side: ``zygote`` and ``child``, ``jail`` and ``root`` (walls), ``scratch``, ``tiers``
  (what is warm), ``program``, ``kernel`` (system calls);
- between them: ``wire`` (what they say to each other), ``filter`` (allowed system calls);
- over HTTP: ``server``, ``client``, ``dispatch``, ``messages``;
- ``probe``: tables of attacks. ``cold``: other systems than Linux.

What is not covered: a fault of the kernel that a program can reach through the calls it may
make; the timing of shared caches; on rung ``portable`` the names and sizes of the machine's
files, the number of threads (memory bounds it) and, where a scratch is given, how much of it
one call fills. Hostile users need a virtual machine or gVisor around the node.
``Sandbox.isolation`` says what is in force.
"""

from rstar2.sandbox.limits import (
    BadCall,
    Rung,
    SandboxLimits,
    SandboxUnavailable,
    SandboxUnsupported,
    Tier,
)
from rstar2.sandbox.pool import Sandbox
from rstar2.sandbox.session import Session
from rstar2.sandbox.state import Isolation, SandboxStats

__all__ = [
    "BadCall",
    "Isolation",
    "Rung",
    "Sandbox",
    "SandboxLimits",
    "SandboxStats",
    "SandboxUnavailable",
    "SandboxUnsupported",
    "Session",
    "Tier",
]
