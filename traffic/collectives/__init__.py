"""Step tables of every collective: what each position sends when, by collective, group size and ranks per host.

Every algorithm is one file. `selection.choose_for` is the entry point, `columns.to_columns` converts schedules for the
engine, and `validate.validate` proves that a table performs its collective. A new algorithm is one new file whose
schedule passes `validate`, and one line in `algorithms.registry`.
"""
