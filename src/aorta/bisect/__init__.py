"""Which container, which package of an environment, and which commit of it, broke it?

`request` is the public API. `spec` says what may have changed; `histories` and `package` turn it
into states and changes, with `aorta.runtimes.git` for what repositories say. `run` is one run
directory and its searches, `investigation` which searches an answer takes. States are made and
tested on the `host`, in `containers`, or in `environments`; the processes that make them are
`aorta.runtimes.checkout`, `image_job` and `venvs`. `trials` is how a state becomes a trial and
what its end means, `metric` where a number decides. `findings` and `report` are the answer,
`watching` what people see meanwhile. The search itself is in `aorta.search` and knows nothing of
git, containers or files.
"""
