"""Puts a switch or a NIC under the network load of a real AI job, without a GPU."""
