"""One file per algorithm: collective and group size in, step table out."""
