"""Runtimes: in what a trial runs.

A runtime turns a trial into a `Launch`: the process an executor starts, its environment, and what
must run afterwards however the trial ends. Imports nothing: some modules are programs.
"""
