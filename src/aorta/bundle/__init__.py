"""A run directory scrubbed into one archive, and reading exactly such archives. Nothing is sent."""
