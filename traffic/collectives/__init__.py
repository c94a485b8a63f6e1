"""Step tables of every collective: takes (collective, group size, ranks per host), gives what each position sends when.

One file an algorithm. `selection.choose_for` is the door in, `columns.to_columns` the door to the engine, and
`validate.validate` the proof that a table does what its collective promises. A new algorithm is one new file whose
schedule passes `validate`, and one line in `selection`.
"""
