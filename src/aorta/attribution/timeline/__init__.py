"""Timeline: who failed first, who only followed, who went on; one cause, and the finding about
it.
"""
