"""Experiments: presets, plans, papermill execution, records and reports."""
