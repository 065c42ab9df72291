"""The elastic launcher that asks whether a crashed job should restart.

Every agent that sees a failure triggers attribution without waiting and goes to rendezvous as
always. The leader (rank 0 of the new round) reads the verdict with a bounded wait and writes the
round's outcome into the rendezvous store by compare-and-set; every agent obeys what the store says.
So attribution and rendezvous run side by side, one answer is read per cycle, and no agent carries a
flag of its own.

A *cycle* is one start of the whole worker group; its number comes from the store and is the same on
every agent. This package knows torch elastic; it leaves the meaning of logs to `aorta.attribution`.
"""
