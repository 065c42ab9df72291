"""Real failing jobs, made to order: where the attribution corpus comes from."""
