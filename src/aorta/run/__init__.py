"""`aorta run`: n trials of one thing. Does it fail, how often, how fast?"""
