"""Programs of ranks, written op by op, and several jobs merged into one."""
