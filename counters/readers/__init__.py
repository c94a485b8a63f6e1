"""One reader a file or a few: Linux, SNMP, gNMI, the lab's switch."""
