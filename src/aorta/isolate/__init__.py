"""`aorta isolate`: is it a node, a link, a rank or the software?

The job runs on chosen placements (nodes in an order) until one hypothesis is likely enough.
"""
