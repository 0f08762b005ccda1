"""Manifests by name: those of ``protocol``, and one that only clusters use.

``protocol`` decides the ids of recorded runs; what no recorded run reads stands here.
"""

from dataclasses import replace

from rstar2.protocol import MANIFESTS, PAPER

PAPER_NO_TOOL = replace(
    PAPER, system=PAPER.system.partition("\n\n")[0], tool_name="", tool_schema=""
)
"""Figure 3 without its tools: the same frame for reasoning without a tool."""

ALL_MANIFESTS = {**MANIFESTS, "paper-no-tool": PAPER_NO_TOOL}
"""Every manifest by its name."""
