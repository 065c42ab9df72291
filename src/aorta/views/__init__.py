"""What a person sees on a terminal while something runs: lines and pictures, drawn from the
engine's events.

A view only listens. No decision of a run rests on one, and a run without any gives the same answer.
"""
