"""From a failing program to one short script that fails the same way.

One trial is traced; the user's modules become one file; passes make it smaller by structure. Every
candidate is a trial of the same engine as any other reduction: here is the search alone.
"""
