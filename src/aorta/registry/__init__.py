"""Names and what they stand for: mitigations, environments, workloads.

A name is built in, from an entry point, or from a sidecar file; one defined twice is refused,
whichever package does so, but a file that is named wins over a plugin. Data and lookup only; the
value of a variable is never repeated.
"""
