"""Two environments: which of the changed packages matters, then which release of it, then which
commit.

`sides` and `locks` read what people have of an environment, `ends` installs both sides and says
what differs and what goes together, `search` is the bisection and the way in, `build` makes the
states, `answer` is what is said and kept. Which releases there are, and how an environment is made,
is the business of `aorta.runtimes`.
"""
