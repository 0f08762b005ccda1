"""What a run leaves behind: its folder, its metrics, and where they come from."""

from rstar2.records.files import (
    RecordError,
    append_json_line,
    atomic_write,
    cut_json_lines,
    read_json_lines,
)
from rstar2.records.metrics import Metric, MetricsLog
from rstar2.records.provenance import (
    Hardware,
    Provenance,
    fingerprint,
    hardware,
    provenance,
    run_id,
    working_tree,
)
from rstar2.records.run_folder import RunFolder, RunState, Worker
from rstar2.records.session import RunStoppedError, Session
from rstar2.records.sources import deciding_imports, deciding_sources

__all__ = [
    "Hardware",
    "Metric",
    "MetricsLog",
    "Provenance",
    "RecordError",
    "RunFolder",
    "RunState",
    "RunStoppedError",
    "Session",
    "Worker",
    "append_json_line",
    "atomic_write",
    "cut_json_lines",
    "deciding_imports",
    "deciding_sources",
    "fingerprint",
    "hardware",
    "provenance",
    "read_json_lines",
    "run_id",
    "working_tree",
]
