"""What the tests share: worlds to ask about, ways to run the program, and the services it is run
against.
"""
