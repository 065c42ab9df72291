"""What can be run: the Workload base class, the `command` workload, and two small real examples.

A registered workload runs in a child process (`child`), so that a segfault is a result.
"""
