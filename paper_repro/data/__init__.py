"""Readers of public data, and of classifiers of the user's own."""
