"""Readers of Linux, SNMP, gNMI and the lab's switch, one or a few files each."""
