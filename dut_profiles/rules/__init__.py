"""Rules that find contradictions within a profile, and with a job or a rig."""
