"""Several racks seen together: their list, the state of each, which of them takes a job, and one page of all.

Pure: filters, needs, scenario_needs, choice, page. Shells: racks_file (files), survey (brokers), server (HTTP). Each
rack's own controller decides what happens to a job.
"""
