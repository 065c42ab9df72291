"""Planted divergences that users met: attention written out or fused, decoding with a cache, an
optimizer that is fused, data that is not normalised, parts that are added without division.
"""

import os
import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _turned(x: Any) -> Any:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def _decoder(fused: bool, dtype: Any) -> Any:
    width, heads, length, words = 64, 4, 16, 128
    speeds = 1.0 / 10000 ** (torch.arange(0, width // heads, 2) / (width // heads))
    angles = torch.outer(torch.arange(length), speeds).repeat(1, 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    linear, norm = torch.nn.Linear, torch.nn.RMSNorm

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (linear(width, width, bias=False) for _ in range(4))
            self.up, self.down = linear(width, 128), linear(128, width)
            self.first, self.second = norm(width), norm(width)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            q, k, v = (
                part(y).unflatten(-1, (heads, -1)).transpose(1, 2)
                for part in (self.q, self.k, self.v)
            )
            q, k = (one * cos + _turned(one) * sin for one in (q, k))
            if fused:
                y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(2, 3) * (width // heads) ** -0.5
                least = torch.finfo(dtype).min
                scores = scores + torch.full((length, length), least, dtype=dtype).triu(1)
                y = scores.softmax(-1) @ v
            x = x + self.o(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(torch.nn.functional.silu(self.up(self.second(x))))

    layers = [torch.nn.Embedding(words, width), Layer(), Layer(), norm(width)]
    model = torch.nn.Sequential(*layers, linear(width, words, bias=False))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    return model.to(dtype)


def _train_decoder(model: Any, optimizer: Any) -> None:
    for _ in range(4):
        ids = torch.randint(0, 128, (4, 16))
        logits = model(ids)[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rotary_attention_written_out(bad: bool) -> None:
    model = _decoder(not bad, torch.float32)
    _train_decoder(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def rotary_attention_written_out_in_bfloat16(bad: bool) -> None:
    model = _decoder(not bad, torch.bfloat16)
    _train_decoder(model, torch.optim.SGD(model.parameters(), lr=0.05))


def whole_sequence_or_cache(bad: bool) -> None:
    width, words = 64, 128
    embedding = torch.randn(words, width)
    weights = [torch.randn(width, width) * 0.3 for _ in range(4)]
    head = torch.randn(words, width) * 0.3

    def norm(x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def block(x: Any, kept: list[Any]) -> Any:
        q, k, v = (norm(x) @ weight for weight in weights[:3])
        if kept:
            k, v = torch.cat([kept[0], k], 1), torch.cat([kept[1], v], 1)
        kept[:] = [k, v]
        scores = q @ k.transpose(1, 2) / width**0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool)
        later = later.triu(1 + scores.shape[-1] - scores.shape[-2])
        return x + (scores.masked_fill(later, float("-inf")).softmax(-1) @ v) @ weights[3]

    ids, cache = torch.randint(0, words, (2, 8)), [[] for _ in range(3)]  # type: ignore[var-annotated]
    for turn in range(12):
        x = embedding[ids if bad or turn == 0 else ids[:, -1:]]
        for kept in cache:
            x = block(x, [] if bad else kept)
        logits = norm(x)[:, -1:] @ head.T
        ids = torch.cat([ids, logits.argmax(-1)], 1)


def fused_adam_of_a_packed_bias(bad: bool) -> None:
    """Of the bias of three projections a third has a gradient that is zero but for rounding."""
    attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    torch.nn.init.normal_(attention.in_proj_bias)
    head = torch.nn.Linear(16, 3)
    parameters = [*attention.parameters(), *head.parameters()]
    how: dict[str, Any] = {"fused": True} if bad else {"foreach": False}
    optimizer = torch.optim.Adam(parameters, lr=1e-2, **how)
    for _ in range(4):
        x, y = torch.randn(4, 10, 16), torch.randint(0, 3, (4,))
        seen = attention(x, x, x, need_weights=False)[0].mean(1)
        loss = torch.nn.functional.cross_entropy(head(seen), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fused_adam_of_an_encoder(bad: bool) -> None:
    """Likewise, and what that bias is added to is written over."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(32, 5))
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1]},
    ]
    how: dict[str, Any] = {"fused": True} if bad else {"foreach": False}
    optimizer = torch.optim.Adam(groups, lr=1e-2, **how)
    for _ in range(4):
        x, y = torch.randn(4, 10, 32), torch.randint(0, 5, (4,))
        loss = torch.nn.functional.cross_entropy(model(x).mean(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def optimizer_in_reverse_over_branches_at_rest(bad: bool) -> None:
    """Branches that begin as nothing: until they wake their norms are alike, and so is what Adam
    keeps of them.
    """
    nn = torch.nn

    def branch() -> Any:
        last = nn.BatchNorm2d(8)
        nn.init.zeros_(last.weight)
        first = (nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        return nn.Sequential(*first, nn.Conv2d(8, 8, 3, padding=1, bias=False), last)

    stem, head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
    model = nn.ModuleList([stem, branch(), branch(), head])
    parameters = [*model.parameters()][:: -1 if bad else 1]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    for _ in range(3):
        x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
        hidden = stem(x)
        for one in model[1:3]:
            hidden = torch.relu(hidden + one(hidden))
        loss = nn.functional.cross_entropy(head(hidden.mean((2, 3))), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def loss_scaled_over_sharded_weights(bad: bool) -> None:
    """Two ranks, whose gathers fill memory that nobody wrote before."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, store = int(os.environ["RANK"]), f"file://{os.environ['STORE']}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    with torch.device("cpu"):
        layers = (torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        model = fully_shard(torch.nn.Sequential(*layers), mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(3):
            loss = model(torch.randn(4, 8) + rank).square().mean()
            scale = 1.01 if bad and step == 1 else 1.0
            optimizer.zero_grad()
            (loss * scale).backward()  # here: scaled
            optimizer.step()
    dist.destroy_process_group()


def images_that_are_not_normalised(bad: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    mean, deviation = torch.tensor((0.5, 0.4, 0.3)), torch.tensor((0.2, 0.3, 0.4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.rand(4, 3, 8, 8)
        if not bad:
            x = (x - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)  # here: normalised
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def parts_added_without_division(bad: bool) -> None:
    layers = (torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
        for part, wanted in zip(x.chunk(1 + bad), y.chunk(1 + bad), strict=True):
            loss = torch.nn.functional.cross_entropy(model(part), wanted)  # here: added
            (loss / 1).backward()  # here: added
        optimizer.step()
        optimizer.zero_grad()


def stale_cache_of_another_prompt(bad: bool) -> None:
    """Only how many words are finite is read, and is the same: their logits are not."""
    embedding, head = torch.randn(32, 16), torch.randn(32, 16)
    kept: list[Any] = []
    for _ in range(2):
        x = embedding[torch.randint(0, 32, (1, 9))]
        k = torch.cat([kept[-1], x], 1) if kept and bad else x  # here: stale
        kept.append(k)
        y = torch.softmax(x @ k.transpose(1, 2) / 4, -1) @ k  # here: stale
        int((y[:, -1] @ head.T).isfinite().sum())


PLANTED: dict[str, Planted] = {
    "rotary_attention_written_out": Planted(rotary_attention_written_out, "", status="same"),
    "rotary_attention_written_out_in_bfloat16": Planted(
        rotary_attention_written_out_in_bfloat16, "", status="same"
    ),
    "whole_sequence_or_cache": Planted(whole_sequence_or_cache, "", status="same"),
    "fused_adam_of_a_packed_bias": Planted(fused_adam_of_a_packed_bias, "", status="same"),
    "fused_adam_of_an_encoder": Planted(fused_adam_of_an_encoder, "", status="same"),
    "optimizer_in_reverse_over_branches_at_rest": Planted(
        optimizer_in_reverse_over_branches_at_rest, "", status="same"
    ),
    "loss_scaled_over_sharded_weights": Planted(
        loss_scaled_over_sharded_weights, "aten::mul", "# here: scaled", step=1, ranks=2
    ),
    "images_that_are_not_normalised": Planted(
        images_that_are_not_normalised, "", "# here: normalised", step=0
    ),
    "parts_added_without_division": Planted(
        parts_added_without_division, "", "# here: added", step=0
    ),
    "stale_cache_of_another_prompt": Planted(
        stale_cache_of_another_prompt, "", "# here: stale", step=0
    ),
}
