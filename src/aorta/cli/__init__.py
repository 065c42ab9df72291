"""One thin module a verb: parse the arguments, call the library, print. Nothing else."""
