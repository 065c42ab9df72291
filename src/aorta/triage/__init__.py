"""Which mitigation, in which environment, makes the failure stop?"""
