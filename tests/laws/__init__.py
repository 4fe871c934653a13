"""Laws: what holds for every registered call."""
