"""Runtimes: in what a trial runs (as a `Launch`). Imports nothing: some modules are programs."""
