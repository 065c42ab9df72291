"""What a person sees on a terminal while something runs: plain lines or a live view, from the
engine's events.

A view only listens. No decision of a run rests on one, and a run without any gives the same answer.
"""
