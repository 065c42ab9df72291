"""Runtimes: in what a trial runs.

A runtime turns a trial into a `Launch`: the process an executor starts, the environment it starts
it with, and what must run afterwards however the trial ends. It asks the container engine
questions; it never starts the trial itself.

Imports nothing: `checkout`, `venvs` and `image_job` are programs, started for every state of a
bisection.
"""
