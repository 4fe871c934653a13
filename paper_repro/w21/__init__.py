"""Widmann, Lindsten, Zachariah (2021): calibration tests beyond classification."""
