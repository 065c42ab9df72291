"""What can be run: the Workload base class, the `command` workload, and two small real examples.

A registered workload runs in a child process of its own (`child`), so that a segfault is a result;
a command runs as it is. `trial` turns either into an experiment for the engine, and `results` keeps
the record of each trial.
"""
