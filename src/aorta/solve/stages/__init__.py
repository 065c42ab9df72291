"""One module a stage, each a call of one verb's library door and what is made of its answer."""
