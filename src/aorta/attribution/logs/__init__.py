"""Logs: read in bounded pieces, each line without its prefix. Knows nothing about failures."""
