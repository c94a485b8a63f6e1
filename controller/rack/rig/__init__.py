"""The rig that a rack serves, and how it becomes another one without a restart."""
