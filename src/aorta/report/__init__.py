"""One page from any run directory: the answer in a sentence, one picture, the evidence.

`run_reader` reads what a run left and scrubs it; `pages` turns that into a `page`, a module a
verb; `charts` draws inline SVG; `html` makes the one file. `watch` writes it while the run goes on.
Nothing here writes into a run but `report.html`, and nothing here knows how a run is
made.

Pictures are SVG written by a few hundred lines of Python: a page of 5,000 trials is 226 kB and
needs no script, where the script alone of Bokeh 3.9 is 1.3 MB and that of Plotly 7.1 is 4.8 MB,
neither of which would run in a page without scripts.
"""
