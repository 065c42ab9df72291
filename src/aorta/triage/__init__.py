"""Which mitigation, in which environment, makes the failure stop? A matrix of cells, and the
smallest stack that works.

A recipe is a file or a set of flags; both become one `Recipe`, one plan of cells and one search on
the engine. The package starts no process of its own: trials and snapshots go through the executor.
"""
