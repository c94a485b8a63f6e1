"""Expected times of the plan (ideal network and twin) next to the measured ones."""
