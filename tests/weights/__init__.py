"""Weights of samples, everywhere."""
