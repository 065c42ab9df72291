"""What may not leave this site, found and replaced. Text, documents and bytes in; the same,
scrubbed, out.

A detector finds stretches of text; overlapping findings become one; each becomes a
placeholder such as `<PATH:1>`, the same for the same value throughout one `Scrubber`. Nothing here
opens a file or writes a map back.
"""
