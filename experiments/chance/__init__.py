"""Which differences between networks, or between recalibration methods, are more than chance?"""
