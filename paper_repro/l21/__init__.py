"""Luo et al. (2021): local calibration, metrics and recalibration."""
