"""Which container, which package of an environment, and which commit of it, broke it?

`request` is the public API, `run` a run directory with its searches, `host`, `containers` and
`environments` where states are made and tested, `findings` and `report` the answer.
"""
