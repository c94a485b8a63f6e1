"""What a network card really does: experiments on one queue pair at a time, and the profile that they make."""
