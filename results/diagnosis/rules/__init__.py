"""Rules, one file each: evidence in, findings out."""
