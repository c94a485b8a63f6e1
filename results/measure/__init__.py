"""Figures of operations, collectives and jobs, from plan and records."""
