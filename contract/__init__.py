"""What every part agrees on: units, errors, the clock, the run's life, messages and record schemas. Imports nothing of ours."""
