"""The classes of the pixels over the image."""
