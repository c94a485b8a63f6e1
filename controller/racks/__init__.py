"""Several racks seen together: which there are, how each stands, which of them takes a job, one page of all.

Pure: filters, choice, page. Shells: racks_file (files), survey (brokers), server (HTTP). What a rack does with a job is its own
controller's.
"""
