"""The direction of a gradient as an arrow."""
