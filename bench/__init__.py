"""Measurements that print their figures: ratios within one run, so that anyone can repeat them."""
