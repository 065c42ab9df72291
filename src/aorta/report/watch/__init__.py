"""The page of a run while it goes on: a read-only server that anyone with the directory can start, on any host."""
