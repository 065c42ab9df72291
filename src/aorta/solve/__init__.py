"""`aorta solve`: every other verb, one after the other and unattended, from a failing command to
its cause.

A stage is one verb asked one question (`stages`); `running` says what each may spend,
`state` remembers what they found and counts their trials, so that a killed run goes on, and
`solution` says it all in ten lines. This is the one package that knows every verb, through its
public API.
"""
