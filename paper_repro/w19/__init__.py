"""Widmann, Lindsten, Zachariah (2019): calibration tests in multi-class classification."""
