"""Boxes on the image."""
