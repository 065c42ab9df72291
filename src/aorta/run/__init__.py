"""`aorta run`: n trials of one thing. Does it fail, how often, how fast?"""

from aorta._verbs import make_callable

make_callable(__name__)
