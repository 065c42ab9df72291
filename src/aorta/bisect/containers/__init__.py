"""Containers: the two days between which it broke, and which of the versions inside them did it."""
