"""The attribution service: agents report a failed cycle, one analysis runs, every reader gets the
one answer.

`store` keeps what must survive, `analyses` turns reports into one decision a cycle, `guard` says
who may ask for what, `api` and `peer` are the two wires. Needs the extra `service`.
"""
