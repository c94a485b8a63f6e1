"""What a run left, made into figures and tables. Works on a run directory alone.

Takes the plan and the records of a session (contract/model/run.py); gives a run directory (`run_dir.write_run`), the figures of
summary.json (`kpis.measure`) and the table a person reads (`table.render`). docs/metrics.md derives every figure.
"""
