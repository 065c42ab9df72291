"""One page from any run directory: the answer in a sentence, one picture, the evidence.

`run_reader` reads and scrubs a run; `pages` (a module a verb) makes a `page`; `charts` draws SVG;
`html` makes the file; `watch` writes it while the run goes on. Only `report.html` is written.

Own SVG since pages run no scripts: 226 kB for 5,000 trials; Bokeh's script is 1.3 MB, Plotly's 4.8.
"""
