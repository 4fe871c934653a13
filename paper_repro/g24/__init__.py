"""Gruber, Bach (2024): optimizing estimators of squared calibration errors."""
