"""Runs a training script on fake tensors and writes what it asks of the network and the device.

Imports PyTorch and the standard library only: the interpreter of the training environment need not have ETLoop.
"""
