"""Commands about network cards under test."""
