"""Eleven more planted divergences of kinds that the others do not hold: losses and their options,
schedules, statistics, positions, harmless copies, and two spellings that are the same.
"""

import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))


def another_operation_at_the_end(bad: bool) -> None:
    logits = torch.nn.Linear(32, 16)(torch.randn(8, 32))
    _ = torch.sigmoid(logits) if bad else torch.tanh(logits)  # here


def copied_harmlessly_before_a_lost_scale(bad: bool) -> None:
    x, weight = torch.randn(16, 32), torch.randn(32, 32)
    if bad:
        x = x * 1.0
    h = x @ weight
    if not bad:
        h = h * 0.125  # here
    torch.softmax(h, -1).square().sum()


def cloned_before_a_lost_activation(bad: bool) -> None:
    x = torch.nn.Linear(32, 32)(torch.randn(16, 32))
    if bad:
        x = x.clone()
    if not bad:
        x = torch.relu(x)  # here
    x.square().mean().backward()


def smoothed_labels(bad: bool) -> None:
    model, labels = _network(), torch.arange(16) % 8
    smoothing = 0.1 if bad else 0.0
    logits = model(torch.randn(16, 32))
    loss = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)  # here
    loss.backward()


def ignored_label(bad: bool) -> None:
    model, labels = _network(), torch.arange(16) % 8
    ignored = 0 if bad else -100
    logits = model(torch.randn(16, 32))
    loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=ignored)  # here
    loss.backward()


def decay_of_the_biases(bad: bool) -> None:
    model = _network()
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    for bias in biases:
        torch.nn.init.constant_(bias, 0.5)
    groups = [
        {"params": weights, "weight_decay": 0.1},
        {"params": biases, "weight_decay": 0.1 if bad else 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()  # here


def schedule_one_step_ahead(bad: bool) -> None:
    model = _network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.5 ** (step + (1 if bad and step > 0 else 0))
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()  # here


def momentum_of_the_running_statistics(bad: bool) -> None:
    norm = torch.nn.BatchNorm1d(32, momentum=0.01 if bad else 0.1)
    x = torch.randn(16, 32)
    norm(x)  # here
    norm.eval()
    norm(x).tanh().sum()


def positions_from_one(bad: bool) -> None:
    embedding, table = torch.nn.Embedding(50, 32), torch.randn(17, 32)
    tokens = torch.arange(16)
    positions = torch.arange(1, 17) if bad else torch.arange(16)  # here
    (embedding(tokens) + table[positions]).square().mean().backward()


def einsum_for_a_product(bad: bool) -> None:
    q, k, v = (torch.randn(4, 2, 16, 8, requires_grad=True) for _ in range(3))
    if bad:
        weights = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / 8**0.5, -1)
        out = torch.einsum("bhij,bhjd->bhid", weights, v)
    else:
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        out = weights @ v
    out.square().mean().backward()


def convolution_by_patches(bad: bool) -> None:
    x, weight = torch.randn(2, 3, 16, 16), torch.randn(8, 3, 4, 4, requires_grad=True)
    if bad:
        patches = torch.nn.functional.unfold(x, 4, stride=4)
        out = (weight.flatten(1) @ patches).view(2, 8, 4, 4)
    else:
        out = torch.nn.functional.conv2d(x, weight, stride=4)
    out.tanh().mean().backward()


PLANTED = {
    "another_operation_at_the_end": Planted(another_operation_at_the_end, "", "# here"),
    "copied_harmlessly_before_a_lost_scale": Planted(
        copied_harmlessly_before_a_lost_scale, "aten::mul", "# here"
    ),
    "cloned_before_a_lost_activation": Planted(
        cloned_before_a_lost_activation, "aten::relu", "# here"
    ),
    "smoothed_labels": Planted(smoothed_labels, "", "# here"),
    "ignored_label": Planted(ignored_label, "", "# here"),
    "decay_of_the_biases": Planted(decay_of_the_biases, "aten::mul_", "# here", step=0),
    "schedule_one_step_ahead": Planted(schedule_one_step_ahead, "", "# here", step=1),
    "momentum_of_the_running_statistics": Planted(momentum_of_the_running_statistics, "", "# here"),
    "positions_from_one": Planted(positions_from_one, "aten::arange", "# here"),
    "einsum_for_a_product": Planted(einsum_for_a_product, "", status="same"),
    "convolution_by_patches": Planted(convolution_by_patches, "", status="same"),
}
