"""gNMI for both ends: messages, paths, the names of OpenConfig and SONiC, and the server of a lab's counters."""
