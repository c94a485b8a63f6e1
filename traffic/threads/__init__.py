"""Which threads run on which cores, and who leaves a core that is to be empty."""
