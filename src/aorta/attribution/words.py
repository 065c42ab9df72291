"""An attribution in words for a terminal."""

from aorta.attribution.nouns import Attribution, Finding, Root


def described(attribution: Attribution) -> str:
    finding, decision = attribution.finding, attribution.decision
    rows = [
        f"{decision.action}  {decision.reason}",
        f"  class     {finding.failure_class} (confidence {finding.confidence:.2f})",
        f"  root      {_place(finding.root)}",
        f"  steps     {_steps(finding)}",
        f"  bug       {finding.fingerprint}",
        f"  rule      {decision.rule}",
    ]
    rows += [f"  advice    {advice.text}" for advice in decision.advice]
    rows += [
        f"  followed  rank {', '.join(map(str, cascade.ranks))}: {cascade.failure_class}"
        for cascade in finding.cascade
    ]
    rows += [f"  {line.file}:{line.line}: {line.text[:160]}" for line in finding.evidence]
    return "\n".join(rows)


def _place(root: Root) -> str:
    parts = [
        f"rank {root.rank}" if root.rank is not None else "",
        f"node {root.node}" if root.node else "",
        f"device {root.device}" if root.device else "",
    ]
    return ", ".join(part for part in parts if part) or "nobody in particular"


def _steps(finding: Finding) -> str:
    if finding.last_step is None:
        return "none reported"
    return f"{finding.first_step} to {finding.last_step}"
