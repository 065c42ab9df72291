"""Two environments: which of the changed packages matters, then which release of it.

`given` reads what people have of an environment, `states` installs both, says what differs and
what goes together, and makes what lies between; `search` is the way in, the bisection and its
answer. Which releases there are, and how an environment is made, is the business of
`aorta.runtimes`.
"""
