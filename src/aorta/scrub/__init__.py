"""What may not leave this site, found and replaced: each stretch becomes a placeholder such as
`<PATH:1>`, the same for the same value throughout one `Scrubber`. Nothing maps back.
"""
