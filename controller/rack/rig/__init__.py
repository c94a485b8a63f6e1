"""The rig that a rack serves, and its replacement without a restart."""
