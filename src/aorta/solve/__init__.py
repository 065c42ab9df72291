"""`aorta solve`: every other verb, one after the other and unattended, from a failing command to
its cause. A stage is one verb asked one question; `state` remembers what they found, so that a
killed run goes on. The one package that knows every verb, through its public API.
"""
