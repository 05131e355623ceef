"""The classes of a text."""
