"""Several racks seen together: which there are, how each stands, which of them takes a job, one page of all.

Pure: filters, needs, scenario_needs, choice, page. Shells: racks_file (files), survey (brokers), server (HTTP). Each
rack's own controller decides what happens to a job.
"""
