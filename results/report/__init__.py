"""What reports say: tables and sentences about a run, a comparison and a sweep, for every form of output."""
