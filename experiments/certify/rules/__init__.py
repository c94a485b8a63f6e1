"""Rules of steps: the evidence of a step's run in, findings and figures by port out. One file each. Pure."""
