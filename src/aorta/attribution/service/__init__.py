"""The attribution service: agents report a failed cycle, one analysis runs, every reader gets the
one answer.

`store` keeps what must survive, `analyses` turns reports into one decision a cycle, `workers` run
an analysis, `api` has the two wires, `server` says who may ask. Needs the extra `service`.
"""
