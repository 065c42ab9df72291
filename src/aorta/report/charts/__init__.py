"""Pictures as inline SVG. A chart is a function of its data and a width in pixels; it knows no run
and no verb.

Marks differ by shape as well as by colour, and colours come from the page's own style, so that one
picture serves light, dark and print.
"""
