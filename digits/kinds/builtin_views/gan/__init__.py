"""Generated images."""
