"""Planted divergences of programs that accumulate gradients: whether a batch in parts is the same."""

import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _train(
    optimizer_of: Any,
    parts: int,
    *,
    divided: bool = True,
    norm: float | None = None,
    scale: float = 1,
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    optimizer = optimizer_of(model.parameters())
    for _ in range(3):
        x, labels = torch.randn(16, 32), torch.randint(0, 8, (16,))
        optimizer.zero_grad()
        for part, wanted in zip(x.chunk(parts), labels.chunk(parts), strict=True):
            logits = model(part)  # here: accumulated
            loss = torch.nn.functional.cross_entropy(logits, wanted) * scale  # here: accumulated
            (loss / parts if divided else loss).backward()  # here: accumulated
        for parameter in model.parameters():
            parameter.grad.div_(scale)
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()


def _descent(rate: float, **more: Any) -> Any:
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, **more)


def _adam(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


def in_parts_by_adam(bad: bool) -> None:
    _train(_adam, 4 if bad else 1)


def in_two_parts_or_in_eight(bad: bool) -> None:
    _train(_descent(0.1, momentum=0.9), 8 if bad else 2)


def in_parts_and_clipped(bad: bool) -> None:
    _train(_descent(0.1), 4 if bad else 1, norm=0.1)


def in_parts_with_another_scale(bad: bool) -> None:
    _train(_descent(0.1), 4 if bad else 1, scale=1024.0 if bad else 64.0)


def in_parts_that_are_not_averaged(bad: bool) -> None:
    _train(_descent(1e-6), 4 if bad else 1, divided=not bad)


def in_parts_that_are_not_averaged_by_adam(bad: bool) -> None:
    _train(_adam, 4 if bad else 1, divided=not bad)


def in_parts_that_are_not_averaged_and_clipped(bad: bool) -> None:
    _train(_descent(1e-6, momentum=0.9), 4 if bad else 1, divided=not bad, norm=1e3)


def in_parts_of_which_the_last_is_lost(bad: bool) -> None:
    model, head = torch.nn.Linear(32, 64), torch.nn.Linear(64, 8)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-5)
    x, labels = torch.randn(16, 32), torch.randint(0, 8, (16,))
    parts = 4 if bad else 1
    for part, wanted in [*zip(x.chunk(parts), labels.chunk(parts), strict=True)][: 3 if bad else 1]:
        logits = head(model(part).tanh())  # here: lost
        (torch.nn.functional.cross_entropy(logits, wanted) / parts).backward()
    optimizer.step()


def _adam_by_hand(bad: bool, rate: float, *, inside: bool = False, decay: float = 0.0) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    means, squares = ([torch.zeros_like(p) for p in weights] for _ in range(2))
    optimizer = torch.optim.AdamW(weights, lr=rate, eps=1e-6, weight_decay=0.1)
    for step in range(1, 4):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        if not bad:
            optimizer.step()  # here: by_hand
            continue
        with torch.no_grad():
            for p, mean, square in zip(weights, means, squares, strict=True):
                mean.mul_(0.9).add_(p.grad, alpha=0.1)
                square.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                upper = mean / (1 - 0.9**step)  # here: by_hand
                lower = square / (1 - 0.999**step)  # here: by_hand
                lower = (lower + 1e-6).sqrt() if inside else lower.sqrt() + 1e-6  # here: by_hand
                p.sub_(rate * decay * p)  # here: by_hand
                p.sub_(rate * upper / lower)  # here: by_hand


def adam_by_hand_in_tiny_steps(bad: bool) -> None:
    _adam_by_hand(bad, 1e-6, inside=True, decay=0.1)


def adam_by_hand_without_decay(bad: bool) -> None:
    _adam_by_hand(bad, 1e-5)


def adam_by_hand(bad: bool) -> None:
    _adam_by_hand(bad, 1e-5, decay=0.1)


PLANTED = {
    "adam_by_hand": Planted(adam_by_hand, "", status="same"),
    "adam_by_hand_in_tiny_steps": Planted(adam_by_hand_in_tiny_steps, "", "# here: by_hand"),
    "adam_by_hand_without_decay": Planted(adam_by_hand_without_decay, "", "# here: by_hand"),
    "in_parts_by_adam": Planted(in_parts_by_adam, "", status="same"),
    "in_two_parts_or_in_eight": Planted(in_two_parts_or_in_eight, "", status="same"),
    "in_parts_and_clipped": Planted(in_parts_and_clipped, "", status="same"),
    "in_parts_with_another_scale": Planted(in_parts_with_another_scale, "", status="same"),
    "in_parts_that_are_not_averaged": Planted(
        in_parts_that_are_not_averaged, "", "# here: accumulated", step=0
    ),
    "in_parts_that_are_not_averaged_by_adam": Planted(
        in_parts_that_are_not_averaged_by_adam, "", "# here: accumulated", step=0
    ),
    "in_parts_that_are_not_averaged_and_clipped": Planted(
        in_parts_that_are_not_averaged_and_clipped, "", "# here: accumulated", step=0
    ),
    "in_parts_of_which_the_last_is_lost": Planted(
        in_parts_of_which_the_last_is_lost, "", "# here: lost", step=0
    ),
}
