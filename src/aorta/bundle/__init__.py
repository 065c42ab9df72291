"""What may leave this site, and what is in it.

*Packing* reads a run directory, takes out what is private, and writes one archive whose manifest
says what it holds and what was removed. *Reading* accepts exactly what packing writes and refuses
everything else. Nothing is sent anywhere, and the run directory is never changed.
"""
