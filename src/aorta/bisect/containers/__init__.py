"""Containers: the two days between which it broke, and which of the versions inside them did it.

`days` walks back through a dated family, `versions` is what differs inside two images and the way
in, `build` makes version sets, `image` asks an image. Registries and the making of images are the
business of `aorta.runtimes`.
"""
