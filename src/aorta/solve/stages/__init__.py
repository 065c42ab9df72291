"""One module a stage, each a call of one verb's API and what is made of its answer."""
