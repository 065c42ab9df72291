"""The host itself: the caller's environment with the trial's layers on top."""

from aorta.core.trial import TrialSpec
from aorta.runtimes.launch import Launch, variables_of


def host_launch(trial: TrialSpec) -> Launch:
    return Launch(argv=trial.argv, cwd=trial.cwd, env=variables_of(trial))
