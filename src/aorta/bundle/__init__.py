"""*Packing* reads a run directory, takes out what is private, and writes one archive; *reading*
accepts exactly what packing writes. Nothing is sent anywhere; the run directory is never changed.
"""
