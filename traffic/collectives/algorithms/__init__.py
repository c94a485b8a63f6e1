"""One file an algorithm: collective and group size in, step table out."""
