"""Many runs that answer one question."""
