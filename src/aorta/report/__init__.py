"""One page from any run directory: the answer in a sentence, one picture, the evidence.

`opening` reads what a run left and scrubs it; `pages` turns that into a page model, a module a verb; `charts` draws inline
SVG; `html` makes the one file. `watch` serves the same page while the run goes on. Nothing here writes into a run
but `report.html`, and nothing here knows how a run is made.

Pictures are SVG written by a few hundred lines of Python: a page of 5,000 trials is 300 kB and needs no script, where the smallest
bundled charting script is 200 kB before the first point (uPlot has no heat map), and Vega or Plotly 0.8 to 4.5 MB.
"""
