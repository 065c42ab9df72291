"""Is it a node or the job? The original on chosen nodes of the cluster, as many as it runs on."""

from dataclasses import replace

from aorta.executors.slurm_commands import nodes_of
from aorta.isolate.request import IsolateRequest, isolate
from aorta.solve.request import SolveRequest
from aorta.solve.state import SharedExecutor, Stage, StageResult, State, Status, Stopped
from aorta.solve.subject import layers_of, oracle_of, original


class Isolate(Stage):
    name = "isolate"

    def why_never(self, request: SolveRequest) -> str:
        if request.on_several_nodes:
            return ""
        return "it runs on one node; with --executor slurm --nodes N nodes are compared"

    def __call__(self, state: State) -> StageResult:
        folder, first = state.folder(self.name), original(state)
        choice = replace(state.request.executor, job_per_trial=True)
        usable = [node.name for node in nodes_of(choice.resources.partition) if node.usable]
        with choice.opened() as inner:
            shared = SharedExecutor(
                **vars(choice), inner=inner, store=state.shared, stage=self.name
            )
            report = isolate(
                IsolateRequest(
                    nodes=",".join(usable),
                    command=first.command,
                    cwd=first.cwd,
                    ranks_per_node=choice.resources.tasks_per_node,
                    world_size=choice.resources.tasks,
                    most_nodes=choice.resources.nodes,
                    layers=layers_of(state.request, first.env),
                    oracle=oracle_of(first.oracle),
                    output=state.path,
                    name=folder.name,
                    **{**state.how(self.name, folder), "executor": shared},
                ),
                state.listeners(self.name),
            )
        Stopped.check(report.ending.reason)
        answer = report.to_json() | {"sentence": report.sentence, "broken": report.broken}
        status: Status = "done"
        if report.status in {"partial", "not_known"}:
            status = "budget" if report.status == "partial" else "no_answer"
        why = "" if status == "done" else report.sentence
        return StageResult(self.name, status, why, str(report.run_dir), answer=answer)
