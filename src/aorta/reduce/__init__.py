"""`aorta reduce`: the smallest workload that still fails.

`spec` reads what the user wrote, `plan` turns it into axes and a search, `running` drives it, and
`output` writes what may be shipped. Nothing here knows another verb.
"""
