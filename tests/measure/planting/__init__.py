"""Cases with one known cause each, as the files of a run: pure functions of a seed."""
