"""Several racks: their list, the state of each, the choice of a rack for a job, and one page for all.

Pure: filters, needs, scenario_needs, choice, page. Shells: racks_file (files), survey (brokers), server (HTTP). Each
rack's own controller decides what happens to a job.
"""
