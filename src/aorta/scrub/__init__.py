"""Finds what may not leave this site and replaces it by placeholders such as `<PATH:1>`.

One value has one placeholder throughout a `Scrubber`. Nothing maps back.
"""
