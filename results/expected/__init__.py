"""What the plan should have taken, next to what was measured."""
