"""Commands about the files that users write."""
