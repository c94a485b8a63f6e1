"""What in a profile contradicts itself, a job or a rig."""
