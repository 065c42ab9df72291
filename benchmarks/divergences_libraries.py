"""Planted divergences shaped like what transformers, Lightning, DDP and loaders do around a model:
gradients that are zero but for rounding, counts, draws ahead, memory before its first use.
"""

import ctypes
import os
import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _attention(width: int, q: Any, k: Any, v: Any, *, fused: bool) -> Any:
    if fused:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    scores = (q @ k.transpose(-1, -2) / width**0.5).softmax(-1)
    return scores @ v


class _Model:
    """An embedding, attention with biases and a head; the key's bias moves no softmax."""

    def __init__(self, width: int = 32, words: int = 50) -> None:
        linear = torch.nn.Linear
        self.width, self.words = width, words
        self.embed, self.qkv = torch.nn.Embedding(words, width), linear(width, 3 * width)
        self.norm, self.head = torch.nn.LayerNorm(width), linear(width, words)
        torch.nn.init.zeros_(self.qkv.bias)
        self.parameters = [
            p for m in (self.embed, self.qkv, self.norm, self.head) for p in m.parameters()
        ]

    def loss(self, ids: Any, *, fused: bool = True, mean: bool = True) -> Any:
        x = self.embed(ids)
        q, k, v = self.qkv(x).split(self.width, -1)
        x = self.norm(x + _attention(self.width, q, k, v, fused=fused))
        wanted = ids.flatten()
        return torch.nn.functional.cross_entropy(
            self.head(x).flatten(0, 1), wanted, reduction="mean" if mean else "sum"
        )


def key_bias_in_parts(bad: bool) -> None:
    model, parts = _Model(), 4 if bad else 1
    optimizer = torch.optim.SGD(model.parameters, lr=0.05)
    for _ in range(4):
        ids = torch.randint(0, 50, (8, 16))
        optimizer.zero_grad()
        for part in ids.chunk(parts):
            (model.loss(part) / parts).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters, 1.0)
        optimizer.step()
    model.qkv.bias.grad.abs().max()


def key_bias_by_adam(bad: bool) -> None:
    model = _Model()
    optimizer = torch.optim.AdamW(model.parameters, lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        model.loss(torch.randint(0, 50, (8, 48)), fused=bad).backward()
        optimizer.step()


def value_bias_is_not_trained(bad: bool) -> None:
    model = _Model()
    optimizer = torch.optim.AdamW(model.parameters, lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        x = model.embed(torch.randint(0, 50, (8, 16)))
        bias = model.qkv.bias.detach() if bad else model.qkv.bias
        qkv = torch.nn.functional.linear(x, model.qkv.weight, bias)  # here: not_trained
        q, k, v = qkv.split(model.width, -1)
        model.norm(_attention(model.width, q, k, v, fused=True)).square().mean().backward()
        optimizer.step()


def product_in_two_before_a_norm(bad: bool) -> None:
    first, last = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)
    linear = torch.nn.Linear(32, 32, bias=False)
    torch.nn.init.normal_(linear.weight, std=0.003)
    modules = (first, last, linear)
    optimizer = torch.optim.SGD([p for m in modules for p in m.parameters()], lr=0.01)
    for _ in range(3):
        x = torch.randn(120, 32)
        h = first(x)
        if bad:
            weight = linear.weight
            more = h[:, :16] @ weight[:, :16].t() + h[:, 16:] @ weight[:, 16:].t()
        else:
            more = linear(h)
        loss = (last(h + more) * x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mean_of_a_norm_is_shifted(bad: bool) -> None:
    first, last = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)
    for _ in range(2):
        h = first(torch.randn(120, 32))
        if bad:
            h = h + 1e-3  # here: shifted
        last.weight.data.copy_(h.mean(0))
        last(h * h).sum()


def order_that_is_drawn_ahead(bad: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-4)
    data = torch.arange(32.0)
    for _ in range(2):
        batches = data[torch.randperm(32)].split(8)
        generator = torch.Generator(torch.get_default_device()).manual_seed(7)
        for number, batch in enumerate(batches):
            # What a loader asks for beyond the last batch, as soon as its workers are that far.
            if number == (0 if bad else 3):
                torch.randperm(32, generator=generator).tolist()
            loss = (weight * batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def order_that_is_drawn_twice(bad: bool) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = torch.randn(32, 4)
    for _ in range(2):
        order = torch.randperm(32)  # here: drawn_twice
        if bad:
            order = torch.randperm(32)  # here: drawn_twice
        for rows in order.tolist()[:3]:
            loss = model(data[rows]).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def _counted(bad: bool, *, wrongly: bool) -> None:
    """Sums over micro-batches, divided by the number of tokens of all of them."""
    model, parts = _Model(), 4 if bad else 1
    optimizer = torch.optim.AdamW(model.parameters, lr=1e-3)
    torch.tensor(8 * parts)  # what a loader says of its length
    for _ in range(3):
        batches = torch.randint(0, 50, (8, 16)).chunk(parts)
        tokens = sum((part != -100).sum() for part in batches)
        optimizer.zero_grad()
        for part in batches:
            share = (part != -100).sum() if wrongly and bad else tokens  # here: counted
            (model.loss(part, mean=False) / share).backward()  # here: counted
        optimizer.step()


def tokens_counted_in_parts(bad: bool) -> None:
    _counted(bad, wrongly=False)


def tokens_of_one_part_counted(bad: bool) -> None:
    _counted(bad, wrongly=True)


def hits_of_shifted_labels(bad: bool) -> None:
    model = torch.nn.Linear(8, 5)
    x, labels = torch.randn(64, 8), torch.arange(64) % 5
    found = model(x).argmax(1)
    wanted = labels + 1 if bad else labels  # here: shifted_labels
    (found == wanted).sum()


def _some_memory(size: int) -> Any:
    """As malloc gives it: not the same twice, and not for us to choose."""
    buffer = torch.empty(size, dtype=torch.int64, device="cpu")
    ctypes.memset(buffer.data_ptr(), os.getpid() % 250 + 1, 8 * size)
    return buffer


def memory_that_is_filled_before_its_use(bad: bool) -> None:
    sizes = _some_memory(64)
    sizes.fill_(3)
    total = sizes.sum() if not bad else sizes.view(8, 8).sum(0).sum()
    (torch.ones(4) * total).sum()


def memory_that_is_added_to(bad: bool) -> None:
    if bad:
        sizes = _some_memory(64)
        sizes.add_(3)
        (torch.ones(4) * sizes.sum()).sum()
    else:
        (torch.ones(4) * torch.full((64,), 3).sum()).sum()


PLANTED = {
    "key_bias_in_parts": Planted(key_bias_in_parts, "", status="same"),
    "key_bias_by_adam": Planted(key_bias_by_adam, "", status="same"),
    "value_bias_is_not_trained": Planted(value_bias_is_not_trained, "", "# here: not_trained"),
    "product_in_two_before_a_norm": Planted(product_in_two_before_a_norm, "", status="same"),
    "mean_of_a_norm_is_shifted": Planted(mean_of_a_norm_is_shifted, "", "# here: shifted"),
    "order_that_is_drawn_ahead": Planted(order_that_is_drawn_ahead, "", status="same"),
    "order_that_is_drawn_twice": Planted(order_that_is_drawn_twice, "", "# here: drawn_twice"),
    "tokens_counted_in_parts": Planted(tokens_counted_in_parts, "", status="same"),
    "tokens_of_one_part_counted": Planted(tokens_of_one_part_counted, "", "# here: counted"),
    "hits_of_shifted_labels": Planted(hits_of_shifted_labels, "", "# here: shifted_labels"),
    "memory_that_is_filled_before_its_use": Planted(
        memory_that_is_filled_before_its_use, "", status="same"
    ),
    "memory_that_is_added_to": Planted(
        memory_that_is_added_to, "aten::empty", status="nondeterministic"
    ),
}
