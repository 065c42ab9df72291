"""The engine drives any search on any executor.

It asks the search for points, runs trials of each until its judge is sure, writes every trial to
the journal before using it, tells the verdict back, and stops when the search is done, a budget is
spent or the user says so. It can be killed at any byte: on resume the journal is played through the
same search and no trial runs twice.
"""
