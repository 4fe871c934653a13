"""What all experiments share: those of the papers, and our own studies."""
