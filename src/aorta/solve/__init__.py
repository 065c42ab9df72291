"""`aorta solve`: every other verb, one after the other and unattended, from a failing command to
its cause.

A stage is one verb asked one question (`stages`); `plan` says which are worth their cost, `state`
remembers what they found so that a killed run goes on, `shared` lets one stage use the trials of
another, and `summary` says it all in ten lines. This is the one room that knows every verb; it goes
through their library doors and never into their insides.
"""
