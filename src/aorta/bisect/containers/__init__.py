"""Containers: the two days between which it broke, and which of the versions inside them did it.

`days` walks back through a dated family, `versions` is what differs inside two images and the way in, `build` makes version
sets (`image_job` is the process that does it), `image` and `registry` ask images and registries.
"""
