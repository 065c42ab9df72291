"""Names and what they stand for: mitigations, environments, workloads.

A name comes from one of three places: the built-in tables, the entry points of an installed
distribution, or a sidecar file the user names. A name defined twice is refused, whoever defined it;
there is no winner. The package holds data and lookup only: it knows nothing about running anything,
and it never repeats the value of a variable.
"""
