"""Code that the commands about racks share: choice of a rack, submission, orders to jobs and ports."""
