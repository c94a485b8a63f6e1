"""The workload "Etloop" for CloudAI: its test scenarios and its design-space exploration run ETLoop's twin, lab, rig or rack."""
