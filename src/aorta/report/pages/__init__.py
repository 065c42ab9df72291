"""A module a verb: `gather` says what it needs from a run directory, `page` makes of it an answer,
a picture and evidence.
"""
