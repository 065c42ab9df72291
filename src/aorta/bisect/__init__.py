"""Which container, and which commit of which package, broke it?

A `spec` says what may have changed, `histories` turn it into one timeline, the engine drives the bisection of that
timeline, `building` makes every state before it is tested, and `output` writes what was found. The search itself is in
`aorta.search` and knows nothing of git, containers or files.
"""
