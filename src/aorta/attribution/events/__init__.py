"""Events: what lines of a log tell of a failure, by patterns that are data, tracebacks and
exits.
"""
