"""Which container, which package of an environment, and which commit of it, broke it?

`entry` takes a request. `spec` says what may have changed; `histories` and `package` turn it into states and changes, with
`aorta.runtimes.git` for what repositories say. `run` is one run directory, `stages` its searches one after the other, `investigation` which
searches an answer takes. States are made and tested on the `host` (`checkout` is the process that does it), or in
environments (`environments`, between two ends read by `environment_files` and `environment_locks` and made by
`environment_ends`; `environment_build` makes states, `environment_job` is that process; `installable` is what goes together,
`package_index` which releases there are, `environment_answer` what is said and kept), or in
containers: `container_days` finds the two days, `container_versions` what differs between them, `container_build` makes images
(`image_job` is that process), `container` and `oci` ask images and registries. `trials` is how a state becomes a trial and what
its end means, `metric` and `levels` where a number decides. `findings` and `report` are the answer, `watching` what people see
meanwhile. The search itself is in `aorta.search` and knows nothing of git, containers or files.
"""

from aorta._verbs import make_callable

make_callable(__name__)
