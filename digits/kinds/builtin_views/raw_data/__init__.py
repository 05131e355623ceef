"""The numbers of every output."""
