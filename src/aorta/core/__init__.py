"""The nouns and the pure rules of Aorta.

A *point* is one configuration worth trying. A *trial* runs it once and ends in facts. An *oracle*
turns the facts into one of four *outcomes*. A *judge* turns outcomes into a *verdict*. Nothing in
this package opens a file, starts a process, reads a clock or draws a random number.
"""
