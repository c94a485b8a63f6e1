"""gNMI for both ends: messages and paths, the names of OpenConfig and SONiC, and what a lab serves of its switches."""
