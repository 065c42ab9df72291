"""`aorta isolate`: is it a node, a link, a rank or the software?

The job is run on chosen placements (which nodes, in which order of ranks) until one hypothesis is
likely enough. `request` says what may be asked, drives the search of `aorta.search.isolation`, and
holds the answer as a document and in words.
"""
