"""A benchmark of collectives: sizes in, the rows and JSON of nccl-tests out."""
