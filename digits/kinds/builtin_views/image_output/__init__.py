"""An output as an image."""
