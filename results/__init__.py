"""Figures and tables from the records of a run. Works on a run directory alone.

Takes the plan and the records of a session (contract/model/run.py). Produces a run directory (`store.run_dir.write_run`), the
figures of summary.json (`measure.summary.measure`) and the printed table (`text.table.render`). docs/metrics.md derives every
figure.
"""
