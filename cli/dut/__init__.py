"""The larger actions of `etloop dut`: reading device counters and converting fabric descriptions."""
