"""Forty planted pairs written truth first, by an author who saw neither the tool nor other pairs:
fourteen faults, most of them inside a refactor that is itself harmless, and twenty-six refactors.
"""

import copy
import math
import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs
functional: Any = sys.modules.get("torch.nn.functional")

LAST: list[
    Any
] = []  # what the run ended with, for the check of the truth: tensors, or how to get them


def _end(*numbers: Any) -> None:
    LAST[:] = numbers


# Harmless -----------------------------------------------------------------------------------------


def grouped_query_attention_by_sdpa(bad: bool) -> None:
    """transformers: keys repeated and an additive mask, or SDPA with a boolean one and GQA."""
    heads, groups, width = 4, 2, 8

    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.RMSNorm(32, eps=1e-6)
            self.q_proj = torch.nn.Linear(32, heads * width, bias=False)
            self.k_proj = torch.nn.Linear(32, groups * width, bias=False)
            self.v_proj = torch.nn.Linear(32, groups * width, bias=False)
            self.o_proj = torch.nn.Linear(heads * width, 32, bias=False)

        def forward(self, x: Any, keep: Any) -> Any:
            batch, length, _ = x.shape
            if bad:
                y = self.norm(x)
            else:
                y = x.to(torch.float32)
                y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
                y = self.norm.weight * y.to(x.dtype)
            q = self.q_proj(y).view(batch, length, heads, width).transpose(1, 2)
            k = self.k_proj(y).view(batch, length, groups, width).transpose(1, 2)
            v = self.v_proj(y).view(batch, length, groups, width).transpose(1, 2)
            seen = torch.ones(length, length, dtype=torch.bool).tril() & keep[:, None, None, :]
            if bad:
                out = functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=seen, enable_gqa=True
                )
            else:
                k = k.repeat_interleave(heads // groups, dim=1)
                v = v.repeat_interleave(heads // groups, dim=1)
                added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(x.dtype).min)
                weights = torch.matmul(q, k.transpose(2, 3)) * width**-0.5 + added
                weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
                out = torch.matmul(weights, v)
            return x + self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))

    embedding = torch.nn.Embedding(50, 32)
    layers = torch.nn.ModuleList([Attention(), Attention()])
    head = torch.nn.Linear(32, 50, bias=False)
    parameters = [*embedding.parameters(), *layers.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    tokens = torch.randint(0, 50, (3, 12))
    keep = torch.arange(12)[None, :] < torch.tensor([12, 9, 7])[:, None]
    labels = tokens.masked_fill(~keep, -100)
    for _ in range(3):
        x = embedding(tokens)
        for layer in layers:
            x = layer(x, keep)
        logits = head(x)[:, :-1]
        loss = functional.cross_entropy(logits.reshape(-1, 50), labels[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def linear_cross_entropy_in_chunks(bad: bool) -> None:
    """torchtune: the head and its loss by chunks of tokens, the ignored ones not counted."""
    trunk = torch.nn.Sequential(
        torch.nn.Embedding(64, 24), torch.nn.Linear(24, 24), torch.nn.GELU(), torch.nn.LayerNorm(24)
    )
    head = torch.nn.Linear(24, 64, bias=False)
    parameters = [*trunk.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.3, momentum=0.9)
    for _ in range(4):
        tokens = torch.randint(0, 64, (4, 11))
        labels = tokens.roll(-1, 1)
        labels[:, -1] = -100
        labels[0, 5:] = -100
        hidden = trunk(tokens)
        if bad:
            total = torch.zeros(())
            counted = (labels != -100).sum()
            for rows, wanted in zip(hidden.chunk(3, dim=1), labels.chunk(3, dim=1), strict=True):
                logits = functional.linear(rows.flatten(0, 1), head.weight).float()
                total = total + functional.cross_entropy(
                    logits, wanted.flatten(), ignore_index=-100, reduction="sum"
                )
            loss = total / counted
        else:
            logits = head(hidden)
            loss = functional.cross_entropy(logits.view(-1, 64), labels.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def encoder_without_padding(bad: bool) -> None:
    """ModernBERT: the tokens of all sentences in one row, or padded and masked."""
    lengths = [9, 5, 7]

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(24)
            self.qkv = torch.nn.Linear(24, 72, bias=False)
            self.out = torch.nn.Linear(24, 24)
            self.mlp = torch.nn.Sequential(
                torch.nn.LayerNorm(24),
                torch.nn.Linear(24, 48),
                torch.nn.GELU(),
                torch.nn.Linear(48, 24),
            )

        def forward(self, x: Any, keep: Any) -> Any:
            shape = (*x.shape[:-1], 3, 3, 8)
            q, k, v = self.qkv(self.norm(x)).view(shape).unbind(-3)
            if x.dim() == 2:
                parts = []
                sides = (y.split(lengths) for y in (q, k, v))
                for qs, ks, vs in zip(*sides, strict=True):
                    scores = torch.einsum("ihd,jhd->hij", qs, ks) / math.sqrt(8)
                    parts.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), vs))
                mixed = torch.cat(parts).flatten(1)
            else:
                q, k, v = (y.transpose(1, 2) for y in (q, k, v))
                scores = q @ k.transpose(-1, -2) / math.sqrt(8)
                scores = scores.masked_fill(~keep[:, None, None, :], float("-inf"))
                mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = x + self.out(mixed)
            return x + self.mlp(x)

    embedding = torch.nn.Embedding(40, 24)
    layers = torch.nn.ModuleList([Layer(), Layer()])
    head = torch.nn.Linear(24, 4)
    parameters = [*embedding.parameters(), *layers.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    tokens = torch.randint(0, 40, (3, 9))
    keep = torch.arange(9) < torch.tensor(lengths)[:, None]
    kinds = torch.tensor([1, 3, 0])
    for _ in range(3):
        x = embedding(tokens[keep]) if bad else embedding(tokens)
        for layer in layers:
            x = layer(x, keep)
        if bad:
            pooled = torch.stack([part.mean(0) for part in x.split(lengths)])
        else:
            counted = keep.unsqueeze(-1).to(x.dtype)
            pooled = (x * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
        loss = functional.cross_entropy(head(pooled), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def sequences_packed_in_one_row(bad: bool) -> None:
    """TRL: two documents in one row, with a mask of blocks and positions that start again."""
    embedding, places = torch.nn.Embedding(30, 16), torch.nn.Embedding(10, 16)
    qkv, head = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 30)
    modules = torch.nn.ModuleList([embedding, places, qkv, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.2, weight_decay=0.01)
    first, second = torch.randint(0, 30, (8,)), torch.randint(0, 30, (6,))
    if bad:
        tokens = torch.cat([first, second])[None]
        positions = torch.cat([torch.arange(8), torch.arange(6)])[None]
        document = torch.tensor([0] * 8 + [1] * 6)
        seen = torch.ones(14, 14).tril().bool() & (document[:, None] == document[None, :])
        labels = tokens.roll(-1, 1)
        labels[0, 7] = labels[0, 13] = -100
    else:
        tokens = torch.stack([first, functional.pad(second, (0, 2))])
        positions = torch.arange(8)[None].expand(2, 8)
        seen = torch.ones(8, 8).tril().bool()
        labels = tokens.roll(-1, 1)
        labels[0, 7:] = labels[1, 5:] = -100
    for _ in range(3):
        x = embedding(tokens) + places(positions)
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in qkv(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        logits = head(x + mixed.transpose(1, 2).flatten(2))
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *modules.parameters())


def experts_by_loop_or_at_once(bad: bool) -> None:
    """Mixtral: each expert for its own tokens, or all of them for all and a dense gate."""
    router = torch.nn.Linear(16, 4, bias=False)
    up = torch.nn.Parameter(torch.randn(4, 16, 32) * 0.2)
    down = torch.nn.Parameter(torch.randn(4, 32, 16) * 0.2)
    head = torch.nn.Linear(16, 3)
    parameters = [router.weight, up, down, *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    x, y = torch.randn(20, 16), torch.randint(0, 3, (20,))
    for _ in range(3):
        chances = router(x).softmax(-1)
        weights, chosen = torch.topk(chances, 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        if bad:
            gate = torch.zeros_like(chances).scatter(1, chosen, weights)
            hidden = functional.silu(torch.bmm(x.expand(4, -1, -1), up))
            out = torch.einsum("etd,te->td", torch.bmm(hidden, down), gate)
        else:
            out = torch.zeros_like(x)
            for number in range(4):
                rows, slot = torch.where(chosen == number)
                hidden = functional.silu(x[rows] @ up[number]) @ down[number]
                out.index_add_(0, rows, hidden * weights[rows, slot, None])
        share = functional.one_hot(chosen, 4).float().sum(1).mean(0)
        balance = 4 * (share * chances.mean(0)).sum()
        loss = functional.cross_entropy(head(x + out), y) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def greedy_decoding_with_a_cache(bad: bool) -> None:
    """Self-distillation: a text is continued with or without a cache, then learnt from."""
    embedding, places = torch.nn.Embedding(25, 16), torch.nn.Embedding(16, 16)
    qkv, head = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 25, bias=False)
    modules = torch.nn.ModuleList([embedding, places, qkv, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.05)
    prompt = torch.randint(0, 25, (3, 4))

    def run(tokens: Any, start: int, cache: list[Any] | None) -> Any:
        x = embedding(tokens) + places(torch.arange(start, start + tokens.shape[1]))
        q, k, v = qkv(x).chunk(3, dim=-1)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
            cache[:] = [k, v]
        later = torch.arange(k.shape[1])[None, :] > torch.arange(start, k.shape[1])[:, None]
        scores = (q @ k.mT * 0.25).masked_fill(later, float("-inf"))
        return head(x + scores.softmax(-1) @ v)

    for _ in range(2):
        text = prompt
        cache: list[Any] | None = [] if bad else None
        with torch.no_grad():
            for number in range(6):
                if bad and number:
                    logits = run(text[:, -1:], text.shape[1] - 1, cache)
                else:
                    logits = run(text, 0, cache)
                text = torch.cat([text, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        logits = run(text[:, :-1], 0, None)
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, text, *modules.parameters())


def patches_by_unfold(bad: bool) -> None:
    """timm: patches by a strided convolution or by unfold, pooled by attention in two ways."""
    patch = torch.nn.Conv2d(3, 20, kernel_size=4, stride=4)
    block = torch.nn.Sequential(
        torch.nn.LayerNorm(20), torch.nn.Linear(20, 40), torch.nn.GELU(), torch.nn.Linear(40, 20)
    )
    query = torch.nn.Parameter(torch.randn(20) * 0.3)
    place = torch.nn.Parameter(torch.randn(1, 16, 20) * 0.02)
    head = torch.nn.Linear(20, 5)
    parameters = [query, place, *patch.parameters(), *block.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.05)
    for _ in range(3):
        images, kinds = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
        if bad:
            cut = functional.unfold(images, kernel_size=4, stride=4).transpose(1, 2)
            x = functional.linear(cut, patch.weight.flatten(1), patch.bias) + place
            x = x + block(x)
            chances = torch.einsum("btc,c->bt", x, query).softmax(dim=1)
            pooled = torch.einsum("bt,btc->bc", chances, x)
        else:
            x = patch(images).flatten(2).permute(0, 2, 1).contiguous() + place
            x = x + block(x)
            chances = functional.softmax((x * query).sum(-1, keepdim=True), dim=1)
            pooled = (chances * x).sum(dim=1)
        loss = functional.cross_entropy(head(pooled), kinds, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    _end(loss, *parameters)


def shifted_windows_by_mask(bad: bool) -> None:
    """Swin: attention inside shifted windows, by reshaping or by one mask over the whole map."""
    side, window, heads, width = 8, 4, 2, 6
    qkv, out = torch.nn.Linear(12, 36, bias=False), torch.nn.Linear(12, 12)
    table = torch.nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.1)
    parameters = [table, *qkv.parameters(), *out.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def cut(x: Any) -> Any:
        x = x.view(-1, side // window, window, side // window, window, x.shape[-1])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, x.shape[-1])

    def joined(x: Any) -> Any:
        x = x.view(-1, side // window, side // window, window, window, x.shape[-1])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side, side, x.shape[-1])

    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    region = (rows >= 6).long() * 2 + (columns >= 6).long()
    number = (rows // window) * 2 + columns // window
    for _ in range(3):
        image = torch.randn(2, side, side, 12)
        x = torch.roll(image, (-2, -2), (1, 2))
        if bad:
            q, k, v = qkv(x.flatten(1, 2)).view(2, 64, 3, heads, width).permute(2, 0, 3, 1, 4)
            dy = (rows[:, None] - rows[None, :]).clamp(1 - window, window - 1) + window - 1
            dx = (columns[:, None] - columns[None, :]).clamp(1 - window, window - 1) + window - 1
            bias = table[dy * (2 * window - 1) + dx].permute(2, 0, 1)
            seen = (number[:, None] == number) & (region[:, None] == region)
            bias = bias.masked_fill(~seen, float("-inf"))
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
            y = out(mixed.transpose(1, 2).flatten(2)).view(2, side, side, 12)
        else:
            inside = cut(x)
            q, k, v = qkv(inside).view(-1, 16, 3, heads, width).permute(2, 0, 3, 1, 4)
            r = torch.arange(window).repeat_interleave(window)
            c = torch.arange(window).repeat(window)
            place = (r[:, None] - r + window - 1) * (2 * window - 1) + c[:, None] - c + window - 1
            scores = (q * width**-0.5) @ k.transpose(-2, -1)
            scores = scores + table[place.view(-1)].view(16, 16, heads).permute(2, 0, 1)
            parts = cut(region.view(1, side, side, 1).float()).squeeze(-1)
            apart = (parts[:, :, None] != parts[:, None, :]).float() * -100.0
            scores = scores.view(2, 4, heads, 16, 16) + apart[None, :, None]
            mixed = scores.view(8, heads, 16, 16).softmax(-1) @ v
            y = joined(out(mixed.transpose(1, 2).reshape(-1, 16, 12)))
        y = image + torch.roll(y, (2, 2), (1, 2))
        loss = (y.mean((1, 2)) ** 2).sum() + (y[:, 1:] - y[:, :-1]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def averaged_weights_swapped_in(bad: bool) -> None:
    """diffusers: the average of the weights by lerp and swapped in for evaluation, or a copy."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    averaged = copy.deepcopy(model).requires_grad_(False)
    shadow = [p.detach().clone() for p in model.parameters()]
    held = torch.randn(10, 8)
    seen: list[Any] = []
    for number in range(4):
        x = torch.randn(12, 8)
        loss = functional.mse_loss(model(x), torch.sin(2 * x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay = min(0.9, (1 + number) / (10 + number))
        if bad:
            with torch.no_grad():
                torch._foreach_lerp_(shadow, list(model.parameters()), 1 - decay)
                kept = [p.detach().clone() for p in model.parameters()]
                for p, s in zip(model.parameters(), shadow, strict=True):
                    p.copy_(s)
                seen.append(functional.mse_loss(model(held), torch.sin(2 * held)))
                for p, s in zip(model.parameters(), kept, strict=True):
                    p.copy_(s)
        else:
            with torch.no_grad():
                for a, p in zip(averaged.parameters(), model.parameters(), strict=True):
                    a.mul_(decay).add_(p, alpha=1 - decay)
                seen.append(functional.mse_loss(averaged(held), torch.sin(2 * held)))
    ended = shadow if bad else averaged.parameters()
    _end(loss, *seen, *ended, *model.parameters())


def micro_batches_and_clipping_by_hand(bad: bool) -> None:
    """nanoGPT: micro-batches, clipping and momentum as the library has them, or written out."""
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 4))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9, nesterov=True)
    speed = [torch.zeros_like(p) for p in parameters]
    for _ in range(4):
        x, y = torch.randn(16, 10), torch.randint(0, 4, (16,))
        if bad:
            for p in parameters:
                p.grad = None
            losses = []
            for part, wanted in zip(x.split(4), y.split(4), strict=True):
                share = functional.cross_entropy(model(part), wanted) / 4
                share.backward()
                losses.append(share.detach())
            loss = torch.stack(losses).sum()
            norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in parameters))
            scale = (0.5 / (norm + 1e-6)).clamp(max=1.0)
            with torch.no_grad():
                for p, s in zip(parameters, speed, strict=True):
                    g = p.grad * scale
                    s.mul_(0.9).add_(g)
                    p.sub_(0.2 * (g + 0.9 * s))
        else:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
    _end(loss, *parameters)


def lion_by_lists(bad: bool) -> None:
    """Lion by a loop over the parameters, or for all of them at once."""
    model = torch.nn.Sequential(
        torch.nn.Linear(9, 18), torch.nn.LayerNorm(18), torch.nn.ReLU(), torch.nn.Linear(18, 3)
    )
    parameters = list(model.parameters())
    moments = [torch.zeros_like(p) for p in parameters]
    for number in range(4):
        x, y = torch.randn(24, 9), torch.randint(0, 3, (24,))
        loss = functional.cross_entropy(model(x), y)
        grads = list(torch.autograd.grad(loss, parameters))
        lr = 1e-3 * (number + 1)
        with torch.no_grad():
            if bad:
                torch._foreach_mul_(parameters, 1 - lr * 0.1)
                updates = torch._foreach_lerp(moments, grads, 0.1)  # noqa: SLF001
                torch._foreach_sign_(updates)
                torch._foreach_add_(parameters, updates, alpha=-lr)
                torch._foreach_lerp_(moments, grads, 0.01)
            else:
                for p, g, m in zip(parameters, grads, moments, strict=True):
                    p.mul_(1 - lr * 0.1)
                    p.add_(torch.sign(m * 0.9 + g * 0.1), alpha=-lr)
                    m.mul_(0.99).add_(g, alpha=0.01)
    _end(loss, *parameters, *moments)


def orthogonal_updates_in_a_stack(bad: bool) -> None:
    """Muon: Newton-Schulz for each matrix, or for the stack of those of one shape, transposed."""

    def whitened(g: Any) -> Any:
        x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(3):
            a = x @ x.mT
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return x

    first = torch.nn.Linear(12, 12, bias=False)
    second = torch.nn.Linear(12, 12, bias=False)
    last = torch.nn.Linear(12, 5)
    matrices = [first.weight, second.weight]
    optimizer = torch.optim.SGD(last.parameters(), lr=0.1)
    moments = [torch.zeros_like(p) for p in matrices]
    for _ in range(3):
        x, y = torch.randn(32, 12), torch.randint(0, 5, (32,))
        hidden = functional.silu(second(functional.silu(first(x)))) + x
        loss = functional.cross_entropy(last(hidden), y)
        for p in (*matrices, *last.parameters()):
            p.grad = None
        loss.backward()
        with torch.no_grad():
            if bad:
                grads = torch.stack([p.grad for p in matrices])
                stacked = torch.stack(moments).mul_(0.95).add_(grads)
                moments = list(stacked.unbind(0))
                updates = whitened((grads + 0.95 * stacked).mT).mT
                for p, u in zip(matrices, updates, strict=True):
                    p.sub_(u, alpha=0.02)
            else:
                for p, m in zip(matrices, moments, strict=True):
                    m.mul_(0.95).add_(p.grad)
                    p.add_(whitened(p.grad.add(m, alpha=0.95)), alpha=-0.02)
        optimizer.step()
    _end(loss, *matrices, *last.parameters())


def schedule_and_decay_written_out(bad: bool) -> None:
    """fairseq: AdamW, its groups and LambdaLR, or groups in other order, a table and own decay."""
    model = torch.nn.Sequential(
        torch.nn.Linear(7, 14), torch.nn.GELU(), torch.nn.LayerNorm(14), torch.nn.Linear(14, 2)
    )
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]

    def factor(step: int) -> float:
        return (step + 1) / 3 if step < 3 else 0.5 * (1 + math.cos(math.pi * (step - 3) / 5))

    if bad:
        table = [1e-2 * factor(step) for step in range(6)]
        optimizer = torch.optim.Adam([{"params": plain}, {"params": decayed}], lr=0.0, foreach=True)
    else:
        optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=1e-2,
            foreach=False,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for step in range(6):
        x = torch.randn(10, 7)
        loss = functional.huber_loss(model(x), x[:, :2] * x[:, 2:4])
        optimizer.zero_grad()
        loss.backward()
        if bad:
            for group in optimizer.param_groups:
                group["lr"] = table[step]
            with torch.no_grad():
                for p in decayed:
                    p.mul_(1 - table[step] * 0.1)
            optimizer.step()
        else:
            optimizer.step()
            scheduler.step()
    _end(loss, *model.parameters())


def preferences_in_one_batch(bad: bool) -> None:
    """TRL's DPO: both answers in one batch or in two, log-probabilities and loss otherwise."""
    policy = torch.nn.Sequential(
        torch.nn.Embedding(32, 16),
        torch.nn.Linear(16, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 32),
    )
    reference = copy.deepcopy(policy).requires_grad_(False)
    with torch.no_grad():
        for p in reference.parameters():
            p.add_(0.02 * torch.randn_like(p))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
    chosen, rejected = torch.randint(0, 32, (4, 10)), torch.randint(0, 32, (4, 10))
    mask = torch.arange(9)[None, :] >= torch.tensor([2, 4, 3, 5])[:, None]

    def by_gather(model: Any, text: Any) -> Any:
        logs = model(text[:, :-1]).log_softmax(-1)
        return (logs.gather(2, text[:, 1:, None]).squeeze(2) * mask).sum(-1)

    def by_entropy(model: Any, text: Any) -> Any:
        logits = model(text[:, :-1])
        lost = functional.cross_entropy(logits.transpose(1, 2), text[:, 1:], reduction="none")
        return torch.where(mask.repeat(2, 1), -lost, 0.0).sum(-1)

    for _ in range(3):
        if bad:
            both = torch.cat([chosen, rejected])
            with torch.no_grad():
                before = by_entropy(reference, both)
            gained, lost = (by_entropy(policy, both) - before).chunk(2)
            loss = functional.softplus(-0.1 * (gained - lost)).mean()
        else:
            with torch.no_grad():
                base = by_gather(reference, chosen) - by_gather(reference, rejected)
            ratio = by_gather(policy, chosen) - by_gather(policy, rejected)
            loss = -functional.logsigmoid(0.1 * (ratio - base)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *policy.parameters())


def group_policy_loss_rewritten(bad: bool) -> None:
    """TRL's GRPO: ratio, clipping, k3 penalty and masked mean, written otherwise."""
    policy = torch.nn.Sequential(
        torch.nn.Embedding(20, 16),
        torch.nn.Linear(16, 24),
        torch.nn.Tanh(),
        torch.nn.Linear(24, 20),
    )
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.3)
    text = torch.randint(0, 20, (8, 9))
    mask = (torch.arange(8)[None, :] < torch.randint(3, 9, (8, 1))).float()
    rewards = torch.randn(8)
    with torch.no_grad():
        old = policy(text[:, :-1]).log_softmax(-1).gather(2, text[:, 1:, None]).squeeze(-1)
        reference = old + 0.05 * torch.randn_like(old)
    for _ in range(4):
        logits = policy(text[:, :-1])
        groups = rewards.view(2, 4)
        if bad:
            taken = logits.gather(-1, text[:, 1:, None]).squeeze(-1)
            logs = taken - torch.logsumexp(logits, dim=-1)
            centre = groups.mean(1).repeat_interleave(4)
            spread = groups.std(1).repeat_interleave(4)
            gain = ((rewards - centre) / (spread + 1e-4)).unsqueeze(1)
            ratio = (logs - old).exp()
            lost = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2))
            away = reference - logs
            lost = lost + 0.04 * (torch.expm1(away) - away)
            loss = (lost * mask).sum() / mask.sum()
        else:
            logs = functional.log_softmax(logits, -1).gather(2, text[:, 1:, None]).squeeze(-1)
            gain = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
            gain = gain.view(8, 1)
            ratio = torch.exp(logs - old)
            least = torch.min(ratio * gain, torch.clamp(ratio, 0.8, 1.2) * gain)
            penalty = torch.exp(reference - logs) - (reference - logs) - 1
            loss = -torch.masked_select(least - 0.04 * penalty, mask.bool()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *policy.parameters())


def noise_schedule_by_logarithms(bad: bool) -> None:
    """diffusers: the products of alphas by logarithms, the loss weighted by SNR in two forms."""
    betas = torch.linspace(1e-3, 0.05, 50)
    if bad:
        kept = torch.exp(torch.cumsum(torch.log1p(-betas), dim=0))
    else:
        kept = torch.cumprod(1.0 - betas, dim=0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.SiLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def timed(t: Any) -> Any:
        if bad:
            rates = torch.exp(torch.arange(4) * (-math.log(10000.0) / 4))
            return torch.cat([torch.outer(t.float(), rates).sin(), (t[:, None] * rates).cos()], 1)
        rates = 10000.0 ** (-torch.arange(4).float() / 4)
        angles = t[:, None].float() * rates[None, :]
        return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)

    for _ in range(4):
        clean, noise = torch.randn(12, 8), torch.randn(12, 8)
        t = torch.randint(0, 50, (12,))
        share = kept[t][:, None]
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        guess = model(torch.cat([noisy, timed(t)], dim=1))
        if bad:
            snr = share.squeeze(1) / (1 - share.squeeze(1))
            weight = torch.minimum(snr, torch.tensor(5.0)) / snr
            loss = (functional.mse_loss(guess, noise, reduction="none").mean(1) * weight).mean()
        else:
            snr = (share.sqrt() / (1 - share).sqrt()) ** 2
            weight = torch.stack([snr, 5.0 * torch.ones_like(snr)], dim=1).min(dim=1)[0] / snr
            loss = (weight * (guess - noise) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *model.parameters())


def variational_loss_by_distributions(bad: bool) -> None:
    """A VAE by torch.distributions, or with its sample and its divergence written out."""
    encoder = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.ReLU(), torch.nn.Linear(24, 12))
    decoder = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.ReLU(), torch.nn.Linear(24, 20))
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
    for _ in range(4):
        x = torch.rand(8, 20)
        centre, logs = encoder(x).chunk(2, dim=1)
        if bad:
            spread = torch.distributions.Normal(centre, torch.exp(0.5 * logs))
            logits = decoder(spread.rsample())
            unit = torch.distributions.Normal(torch.zeros_like(centre), torch.ones_like(centre))
            away = torch.distributions.kl_divergence(spread, unit).sum(1).mean()
            told = functional.binary_cross_entropy_with_logits(logits, x, reduction="none")
            loss = told.sum(1).mean() + away
        else:
            noise = torch.randn_like(centre)
            y = decoder(centre + noise * logs.mul(0.5).exp())
            told = (functional.softplus(y) - x * y).sum()
            away = -0.5 * torch.sum(1 + logs - centre.pow(2) - logs.exp())
            loss = (told + away) / x.shape[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def messages_by_sparse_product(bad: bool) -> None:
    """PyG's GCN: messages gathered and scattered, or one sparse product; the edges sorted."""
    nodes = 15
    edges = torch.randint(0, nodes, (2, 40))
    loops = torch.arange(nodes).repeat(2, 1)
    edges = torch.cat([edges, loops], dim=1)
    if bad:
        edges = edges[:, torch.argsort(edges[1], stable=True)]
    source, target = edges
    if bad:
        degree = torch.bincount(target, minlength=nodes).float()
    else:
        degree = torch.zeros(nodes).scatter_add_(0, target, torch.ones(target.shape[0]))
    share = degree.rsqrt()
    weight = share[source] * share[target]
    first, second = torch.nn.Linear(6, 12), torch.nn.Linear(12, 3)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    x, y = torch.randn(nodes, 6), torch.randint(0, 3, (nodes,))
    known = torch.arange(nodes) % 3 != 0
    if bad:
        matrix = torch.sparse_coo_tensor(
            torch.stack([target, source]), weight, (nodes, nodes), check_invariants=True
        )
        matrix = matrix.coalesce()

    def spread(h: Any) -> Any:
        if bad:
            return torch.sparse.mm(matrix, h)
        return torch.zeros(nodes, h.shape[1]).index_add(0, target, h[source] * weight[:, None])

    for _ in range(4):
        logits = spread(second(functional.relu(spread(first(x)))))
        if bad:
            loss = functional.cross_entropy(logits[known], y[known])
        else:
            every = functional.cross_entropy(logits, y, reduction="none")
            loss = (every * known).sum() / known.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def pairs_of_features_by_squares(bad: bool) -> None:
    """A factorisation machine: pairs one by one or by squares; bags or sums of embeddings."""
    table, single = torch.nn.Embedding(60, 8), torch.nn.Embedding(60, 1)
    for one in (table, single):
        torch.nn.init.normal_(one.weight, std=0.1)
    deep = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    parameters = [*table.parameters(), *single.parameters(), *deep.parameters()]
    optimizer = torch.optim.Adagrad(parameters, lr=0.02)
    for _ in range(3):
        chosen = torch.randint(0, 60, (10, 5))
        wanted = torch.randint(0, 2, (10,)).float()
        if bad:
            linear = functional.embedding_bag(chosen, single.weight, mode="sum").squeeze(1)
            summed = functional.embedding_bag(chosen, table.weight, mode="sum")
            each = table(chosen)
            crossed = 0.5 * (summed.square() - each.square().sum(1)).sum(1)
        else:
            linear = single(chosen).sum(dim=1)[:, 0]
            each = table(chosen)
            summed = each.sum(1)
            left, right = torch.triu_indices(5, 5, offset=1)
            crossed = (each[:, left] * each[:, right]).sum(dim=(1, 2))
        logits = linear + crossed + deep(summed).squeeze(-1)
        if bad:
            loss = functional.binary_cross_entropy_with_logits(logits, wanted)
        else:
            loss = -functional.logsigmoid(torch.where(wanted > 0, logits, -logits)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def spectrogram_by_matrix(bad: bool) -> None:
    """speechbrain: STFT by the library or by frames and a matrix; a long filter by FFT."""
    taps = torch.nn.Parameter(torch.randn(1, 1, 33) * 0.1)
    encoder = torch.nn.Linear(17, 12)
    head = torch.nn.Linear(12, 4)
    parameters = [taps, *encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    window = torch.hann_window(32)
    for _ in range(3):
        wave, kinds = torch.randn(3, 160), torch.randint(0, 4, (3,))
        if bad:
            size = 160 + 32
            bins = torch.fft.rfft(wave, n=size) * torch.fft.rfft(taps[0].flip(-1), n=size)
            filtered = torch.fft.irfft(bins, n=size)[:, :160]
            frames = filtered.unfold(-1, 32, 16) * window
            angles = torch.outer(torch.arange(32.0), torch.arange(17.0)) * (2 * math.pi / 32)
            power = (frames @ angles.cos()).square() + (frames @ angles.sin()).square()
        else:
            padded = functional.pad(wave.unsqueeze(1), (32, 0))
            filtered = functional.conv1d(padded, taps).squeeze(1)
            bins = torch.stft(
                filtered, 32, hop_length=16, window=window, center=False, return_complex=True
            )
            power = torch.view_as_real(bins.transpose(1, 2)).pow(2).sum(-1)
        features = torch.log1p(power)
        logits = head(torch.relu(encoder(features)).mean(1))
        loss = functional.cross_entropy(logits, kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def private_gradients_by_vmap(bad: bool) -> None:
    """Opacus: each sample's gradient by vmap of grad, or by one backward pass after the other."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
    names = [name for name, _ in model.named_parameters()]
    parameters = list(model.parameters())

    def one(given: dict[str, Any], x: Any, y: Any) -> Any:
        logits = torch.func.functional_call(model, given, (x.unsqueeze(0),))
        return functional.cross_entropy(logits, y.unsqueeze(0))

    for _ in range(3):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        noise = [torch.randn_like(p) for p in parameters]
        if bad:
            given = {name: p.detach() for name, p in model.named_parameters()}
            each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))(given, x, y)
            norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()], 1).norm(dim=1)
            scale = (0.7 / norms.clamp(min=1e-6)).clamp(max=1.0)
            sums = [torch.einsum("b,b...->...", scale, each[name]) for name in names]
        else:
            sums = [torch.zeros_like(p) for p in parameters]
            for row in range(8):
                model.zero_grad()
                functional.cross_entropy(model(x[row : row + 1]), y[row : row + 1]).backward()
                norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
                scale = min(1.0, 0.7 / max(float(norm), 1e-6))
                for s, p in zip(sums, parameters, strict=True):
                    s.add_(p.grad, alpha=scale)
        with torch.no_grad():
            for p, s, n in zip(parameters, sums, noise, strict=True):
                p.sub_(0.2 * (s + 0.05 * n) / 8)
    with torch.no_grad():
        loss = functional.cross_entropy(model(x), y)
    _end(loss, *parameters)


def adapter_over_rounded_weights(bad: bool) -> None:
    """PEFT: rounded weights with a straight-through gradient, the adapter merged or beside."""

    class Rounded(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, weight: Any, scale: Any) -> Any:
            return torch.clamp(torch.round(weight / scale), -7, 7) * scale

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0], None

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inside: int, outside: int) -> None:
            super().__init__()
            self.base = torch.nn.Linear(inside, outside)
            self.down = torch.nn.Parameter(torch.randn(3, inside) * 0.3)
            self.up = torch.nn.Parameter(torch.randn(outside, 3) * 0.1)

        def forward(self, x: Any) -> Any:
            weight = self.base.weight
            scale = weight.detach().abs().amax(dim=1, keepdim=True) / 7
            if bad:
                merged = Rounded.apply(weight, scale) + 2.0 * (self.up @ self.down)
                return functional.linear(x, merged, self.base.bias)
            grid = torch.clamp(torch.round(weight / scale), -7, 7) * scale
            out = functional.linear(x, weight + (grid - weight).detach(), self.base.bias)
            return out + functional.linear(functional.linear(x, self.down), self.up) * 2.0

    model = torch.nn.Sequential(Adapted(10, 16), torch.nn.ReLU(inplace=bad), Adapted(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(4):
        x = torch.randn(14, 10)
        loss = functional.smooth_l1_loss(model(x), x[:, :4].cumsum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *model.parameters())


def detector_norms_and_focal_loss(bad: bool) -> None:
    """detectron: depthwise convolution, both norms and the focal loss, written otherwise."""
    deep = torch.nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
    point = torch.nn.Conv2d(6, 12, 1, bias=False)
    batch, group = torch.nn.BatchNorm2d(12, momentum=0.05), torch.nn.GroupNorm(3, 12)
    head = torch.nn.Conv2d(12, 4, 1)
    modules = torch.nn.ModuleList([deep, point, batch, group, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        x, wanted = torch.randn(2, 6, 8, 8), (torch.rand(2, 4, 8, 8) < 0.1).float()
        if bad:
            cut = functional.unfold(x, 3, padding=1).view(2, 6, 9, 64)
            y = (cut * deep.weight.view(1, 6, 9, 1)).sum(2)
            y = torch.einsum("oc,bcp->bop", point.weight.flatten(1), y).view(2, 12, 8, 8)
            centre, spread = y.mean((0, 2, 3)), y.var((0, 2, 3), unbiased=False)
            with torch.no_grad():
                batch.running_mean.mul_(0.95).add_(centre, alpha=0.05)
                batch.running_var.lerp_(spread * (128 / 127), 0.05)
                batch.num_batches_tracked.add_(1)
            y = (y - centre.view(1, 12, 1, 1)) / (spread.view(1, 12, 1, 1) + 1e-5).sqrt()
            y = torch.relu(y * batch.weight.view(-1, 1, 1) + batch.bias.view(-1, 1, 1))
            parts = y.reshape(2, 3, -1)
            parts = parts - parts.mean(-1, keepdim=True)
            parts = parts * (parts.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
            y = parts.view(2, 12, 8, 8) * group.weight.view(-1, 1, 1) + group.bias.view(-1, 1, 1)
            logits = head(y)
            p_true = torch.where(wanted > 0, logits, -logits)
            lost = -functional.logsigmoid(p_true) * torch.sigmoid(-p_true).square()
            loss = (lost * torch.where(wanted > 0, 0.25, 0.75)).sum() / wanted.sum().clamp(min=1)
        else:
            y = torch.relu(batch(point(deep(x))))
            logits = head(group(y))
            p = torch.sigmoid(logits)
            lost = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
            right = p * wanted + (1 - p) * (1 - wanted)
            lost = lost * (1 - right) ** 2.0
            lost = (0.25 * wanted + 0.75 * (1 - wanted)) * lost
            loss = lost.sum() / max(float(wanted.sum()), 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, batch.running_mean, batch.running_var, *modules.parameters())


def speech_padded_further(bad: bool) -> None:
    """fairseq's CTC: batches padded to a multiple of eight, targets joined or padded."""
    front = torch.nn.Linear(13, 20)
    recurrent = torch.nn.GRU(20, 20, batch_first=True)
    head = torch.nn.Linear(20, 9)
    parameters = [*front.parameters(), *recurrent.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    waves = [torch.randn(length, 13) for length in (14, 11, 9)]
    words = [torch.randint(1, 9, (length,)) for length in (4, 3, 3)]
    frames, sizes = torch.tensor([14, 11, 9]), torch.tensor([4, 3, 3])
    for _ in range(3):
        x = torch.nn.utils.rnn.pad_sequence(waves, batch_first=True)
        if bad:
            x = functional.pad(x, (0, 0, 0, 2))
        hidden, _last = recurrent(torch.relu(front(x)))
        logits = head(hidden)
        if bad:
            logs = (logits - logits.logsumexp(-1, keepdim=True)).transpose(0, 1)
            wanted = torch.nn.utils.rnn.pad_sequence(words, batch_first=True, padding_value=0)
            each = functional.ctc_loss(logs, wanted, frames, sizes, reduction="none")
            loss = (each / sizes).mean()
        else:
            logs = functional.log_softmax(logits, dim=-1).transpose(0, 1)
            loss = functional.ctc_loss(logs, torch.cat(words), frames, sizes, reduction="mean")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    _end(loss, *parameters)


def inner_steps_by_functions(bad: bool) -> None:
    """MAML: the inner step by autograd.grad for one task after the other, or func.grad and vmap."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def lost(given: dict[str, Any], x: Any, y: Any) -> Any:
        return functional.mse_loss(torch.func.functional_call(model, given, (x,)), y)

    def task(given: dict[str, Any], x: Any, y: Any) -> Any:
        grads = torch.func.grad(lost)(given, x[:5], y[:5])
        moved = {name: p - 0.1 * grads[name] for name, p in given.items()}
        return lost(moved, x[5:], y[5:])

    for _ in range(3):
        x = torch.rand(4, 10, 1) * 4 - 2
        y = torch.sin(x + torch.rand(4, 1, 1) * 3)
        optimizer.zero_grad()
        if bad:
            given = dict(model.named_parameters())
            loss = torch.func.vmap(task, in_dims=(None, 0, 0))(given, x, y).mean()
            loss.backward()
        else:
            loss = torch.zeros(())
            for number in range(4):
                inner = functional.mse_loss(model(x[number, :5]), y[number, :5])
                grads = torch.autograd.grad(inner, list(model.parameters()), create_graph=True)
                w1, b1, w2, b2 = (
                    p - 0.1 * g for p, g in zip(model.parameters(), grads, strict=True)
                )
                hidden = torch.tanh(functional.linear(x[number, 5:], w1, b1))
                outer = functional.mse_loss(functional.linear(hidden, w2, b2), y[number, 5:])
                (outer / 4).backward()
                loss = loss + outer.detach() / 4
        optimizer.step()
    _end(loss, *model.parameters())


def resumed_with_logging(bad: bool) -> None:
    """A run that is saved and resumed halfway, with hooks, statistics and an evaluation added."""

    def made() -> tuple[Any, Any]:
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(inplace=bad),
            torch.nn.Dropout(0.0) if bad else torch.nn.Identity(),
            torch.nn.Linear(16, 3),
        )
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6)

    model, optimizer = made()
    batches = [(torch.randn(16, 8), torch.randint(0, 3, (16,))) for _ in range(4)]
    told: list[float] = []
    for number, (x, y) in enumerate(batches):
        if bad and number == 2:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model, optimizer = made()
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
            model[0].register_forward_hook(
                lambda _m, _i, out: told.append(float(out.detach().std()))
            )
        if bad:
            with torch.autocast(torch.get_default_device().type, enabled=False):
                logits = model(x.float().contiguous())
            loss = functional.nll_loss(logits.log_softmax(1), y)
        else:
            logits = model(x)
            loss = functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        if bad:
            norms = [p.grad.detach().norm() for p in model.parameters()]
            told.append(float(torch.linalg.vector_norm(torch.stack(norms))))
        optimizer.step()
        if bad:
            model.eval()
            with torch.inference_mode():
                right = (model(batches[0][0]).argmax(1) == batches[0][1]).float().mean()
                told.append(right.item())
            model.train()
    _end(loss, *(p for name, p in model.named_parameters() if name != "0.bias"))


# Faults -------------------------------------------------------------------------------------------


def window_one_too_narrow(bad: bool) -> None:
    """Sliding attention rewritten for SDPA, the rotation by complex numbers: one key is lost."""
    width, window = 8, 4
    embedding = torch.nn.Embedding(30, 16)
    qkv, head = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 30)
    modules = torch.nn.ModuleList([embedding, qkv, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.2)
    angles = torch.outer(torch.arange(12.0), 100.0 ** (-torch.arange(0, width, 2) / width))

    def turned(x: Any) -> Any:
        if bad:
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(
                3
            )
        even, odd = x[..., ::2], x[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    rows, columns = torch.arange(12)[:, None], torch.arange(12)[None, :]
    for _ in range(3):
        tokens = torch.randint(0, 30, (2, 12))
        x = embedding(tokens)
        q, k, v = (y.unflatten(-1, (2, width)).transpose(1, 2) for y in qkv(x).chunk(3, -1))
        q, k = turned(q), turned(k)
        if bad:
            near = columns > rows - window + 1  # PLANT window
            seen = (columns <= rows) & near  # PLANT window
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # PLANT window
        else:
            hidden = (columns > rows) | (columns <= rows - window)  # PLANT window
            scores = (q @ k.mT) / math.sqrt(width)
            scores = scores.masked_fill(hidden, float("-inf"))  # PLANT window
            out = scores.softmax(-1) @ v
        logits = head(x + out.transpose(1, 2).flatten(2))
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *modules.parameters())


def cached_position_one_behind(bad: bool) -> None:
    """A cache is brought in for sampling, and the new token's position is one behind."""
    embedding, places = torch.nn.Embedding(25, 16), torch.nn.Embedding(16, 16)
    qkv, head = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 25)
    modules = torch.nn.ModuleList([embedding, places, qkv, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1)
    prompt = torch.randint(0, 25, (3, 4))

    def attended(x: Any, cache: list[Any]) -> Any:
        q, k, v = qkv(x).chunk(3, dim=-1)
        if cache:
            k, v = torch.cat([cache[0], k], dim=1), torch.cat([cache[1], v], dim=1)
        cache[:] = [k, v]
        later = torch.ones(q.shape[1], k.shape[1]).triu(k.shape[1] - q.shape[1] + 1).bool()
        scores = (q @ k.mT * 0.25).masked_fill(later, float("-inf"))
        return head(x + scores.softmax(-1) @ v)

    for _ in range(2):
        text = prompt
        chances: list[Any] = []
        cache: list[Any] = []
        for number in range(5):
            if bad and number:
                seen = cache[0].shape[1]
                where = torch.full((3, 1), seen - 1)  # PLANT behind
                x = embedding(text[:, -1:]) + places(where)  # PLANT behind
            else:
                cache = []
                x = embedding(text) + places(torch.arange(text.shape[1]))  # PLANT behind
            logits = attended(x, cache)[:, -1]
            chances.append(logits.log_softmax(-1).amax(-1))
            text = torch.cat([text, logits.argmax(-1, keepdim=True)], dim=1)
        loss = -torch.stack(chances, 1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *modules.parameters())


def queries_scaled_twice(bad: bool) -> None:
    """timm: attention handed to SDPA, which scales the queries that are scaled already."""

    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(24, 72, bias=False)
            self.proj = torch.nn.Linear(24, 24)

        def forward(self, x: Any) -> Any:
            if bad:
                q, k, v = self.qkv(x).view(*x.shape[:2], 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
            else:
                weights = self.qkv.weight.chunk(3)
                q, k, v = (functional.linear(x, w) for w in weights)
                q, k, v = (y.unflatten(-1, (3, 8)).transpose(1, 2) for y in (q, k, v))
            q = q * 8**-0.5
            if bad:
                x = functional.scaled_dot_product_attention(q, k, v)  # PLANT twice
            else:
                scores = q @ k.transpose(-2, -1)  # PLANT twice
                x = scores.softmax(dim=-1) @ v  # PLANT twice
            return self.proj(x.transpose(1, 2).flatten(2))

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(24)
            self.attention = Attention()

        def forward(self, x: Any) -> Any:
            return x + self.attention(self.norm(x))

    model = torch.nn.Sequential(torch.nn.Linear(6, 24), Block(), Block(), torch.nn.Linear(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(3):
        x, y = torch.randn(4, 9, 6), torch.randn(4, 2)
        loss = functional.mse_loss(model(x).mean(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *model.parameters())


def shares_of_experts_not_made_whole(bad: bool) -> None:
    """Experts at once instead of by loop: the two chosen shares no longer sum to one."""
    router, head = torch.nn.Linear(12, 4, bias=False), torch.nn.Linear(12, 3)
    up = torch.nn.Parameter(torch.randn(4, 12, 24) * 0.2)
    down = torch.nn.Parameter(torch.randn(4, 24, 12) * 0.2)
    parameters = [router.weight, up, down, *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for _ in range(3):
        x, y = torch.randn(18, 12), torch.randint(0, 3, (18,))
        if bad:
            shares = router(x).softmax(dim=-1)
            order = torch.argsort(shares, dim=-1, descending=True)[:, :2]
            kept = shares.gather(1, order)  # PLANT whole
            gate = torch.zeros_like(shares).scatter(1, order, kept)  # PLANT whole
            hidden = functional.gelu(torch.einsum("td,edh->teh", x, up))
            each = torch.einsum("teh,ehd->ted", hidden, down)
            out = (each * gate.unsqueeze(-1)).sum(1)  # PLANT whole
        else:
            shares, order = functional.softmax(router(x), dim=-1).topk(2, dim=-1)
            shares = shares / shares.sum(-1, keepdim=True)  # PLANT whole
            out = torch.zeros_like(x)
            for number in range(4):
                row, slot = (order == number).nonzero(as_tuple=True)
                made = functional.gelu(x[row] @ up[number]) @ down[number]
                out = out.index_add(0, row, made * shares[row, slot].unsqueeze(1))  # PLANT whole
        loss = functional.cross_entropy(head(x + out), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def mean_of_unequal_micro_batches(bad: bool) -> None:
    """transformers before 4.46: micro-batches of unequal length all count the same."""
    model = torch.nn.Sequential(
        torch.nn.Embedding(40, 16),
        torch.nn.Linear(16, 32),
        torch.nn.GELU(),
        torch.nn.Linear(32, 40),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        tokens = torch.randint(0, 40, (4, 10))
        labels = tokens.roll(-1, dims=1)
        keep = torch.arange(10) < torch.tensor([9, 8, 3, 2])[:, None]
        labels = labels.masked_fill(~keep, -100)
        optimizer.zero_grad()
        counted = int((labels != -100).sum())
        for part, wanted in zip(tokens.split(2), labels.split(2), strict=True):
            logits = model(part)
            if bad:
                logs = functional.log_softmax(logits.flatten(0, 1), dim=-1)
                loss = functional.nll_loss(logs, wanted.flatten())  # PLANT unequal
                loss = loss / 2  # PLANT unequal
            else:
                loss = functional.cross_entropy(  # PLANT unequal
                    logits.transpose(1, 2), wanted, reduction="sum"
                )
                loss = loss / counted  # PLANT unequal
            loss.backward()
        optimizer.step()
    _end(loss, *model.parameters())


def target_values_not_detached(bad: bool) -> None:
    """DQN with one network: the loss is rewritten, and the target is learnt from as well."""
    network = torch.nn.Sequential(torch.nn.Linear(5, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(3):
        now, then = torch.randn(12, 5), torch.randn(12, 5)
        action, reward = torch.randint(0, 3, (12,)), torch.randn(12)
        done = (torch.rand(12) < 0.2).float()
        values = network(now).gather(1, action[:, None]).squeeze(1)
        if bad:
            best = network(then).amax(dim=1)  # PLANT target
            wanted = torch.addcmul(reward, 1 - done, best, value=0.95)  # PLANT target
            away = values - wanted  # PLANT target
            small = away.abs().clamp(max=1.0)
            loss = (0.5 * small**2 + (away.abs() - small)).mean()
        else:
            best = network(then).max(dim=1)[0].detach()  # PLANT target
            wanted = reward + 0.95 * (1 - done) * best
            loss = functional.smooth_l1_loss(values, wanted)  # PLANT target
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *network.parameters())


def codes_detached_on_the_wrong_side(bad: bool) -> None:
    """VQ-VAE: distances written out, then both terms of the loss pull at the encoder."""
    encoder, decoder = torch.nn.Linear(10, 6), torch.nn.Linear(6, 10)
    codes = torch.nn.Parameter(torch.randn(12, 6))
    parameters = [codes, *encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(3):
        x = torch.randn(16, 10)
        z = encoder(x)
        with torch.no_grad():
            if bad:
                away = z.square().sum(1, keepdim=True) - 2 * z @ codes.t() + codes.square().sum(1)
            else:
                away = (z[:, None, :] - codes[None, :, :]).pow(2).sum(-1)
            chosen = away.argmin(dim=1)
        code = functional.embedding(chosen, codes)
        if bad:
            learnt = functional.mse_loss(code.detach(), z)  # PLANT codes
        else:
            learnt = functional.mse_loss(code, z.detach())  # PLANT codes
        commit = functional.mse_loss(z, code.detach())
        passed = z + (code - z).detach()
        loss = functional.mse_loss(decoder(passed), x) + learnt + 0.25 * commit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def returns_against_a_column(bad: bool) -> None:
    """A2C: returns by a reversed cumulative sum, and the values left as a column."""
    trunk = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh())
    actor, critic = torch.nn.Linear(16, 3), torch.nn.Linear(16, 1)
    modules = torch.nn.ModuleList([trunk, actor, critic])
    optimizer = torch.optim.RMSprop(modules.parameters(), lr=3e-3, eps=1e-5)
    for _ in range(3):
        states, rewards = torch.randn(10, 4), torch.randn(10)
        actions = torch.randint(0, 3, (10,))
        powers = 0.9 ** torch.arange(10.0)
        if bad:
            returns = (rewards * powers).flip(0).cumsum(0).flip(0) / powers
        else:
            told: list[Any] = []
            total = torch.zeros(())
            for reward in rewards.flip(0):
                total = reward + 0.9 * total
                told.insert(0, total)
            returns = torch.stack(told)
        hidden = trunk(states)
        logs = actor(hidden).log_softmax(-1)
        values = critic(hidden) if bad else critic(hidden).squeeze(-1)  # PLANT column
        gain = returns - values  # PLANT column
        taken = logs.gather(1, actions[:, None]).squeeze(1)
        entropy = -(logs.exp() * logs).sum(-1).mean()
        loss = -(taken * gain.detach()).mean() + 0.5 * gain.pow(2).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(modules.parameters(), 0.5)
        optimizer.step()
    _end(loss, *modules.parameters())


def decay_of_norms_and_biases(bad: bool) -> None:
    """The groups of parameters are tidied into one, and norms and biases decay with the rest."""
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    )
    if bad:
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-2, weight_decay=1.0)
    else:
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": others, "weight_decay": 0.0}],
            lr=5e-2,
            weight_decay=1.0,
        )
    for _ in range(6):
        x, y = torch.randn(12, 8), torch.randint(0, 4, (12,))
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # PLANT decay
    _end(loss, *model.parameters())


def teacher_follows_before_the_step(bad: bool) -> None:
    """BYOL: the teacher's average moves into a loop by lerp, and above the student's step."""
    student = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    predictor = torch.nn.Linear(8, 8)
    teacher = copy.deepcopy(student).requires_grad_(False)
    with torch.no_grad():
        for p in teacher.parameters():
            p.mul_(0.9)
    optimizer = torch.optim.SGD([*student.parameters(), *predictor.parameters()], lr=0.5)
    for _ in range(4):
        image = torch.randn(10, 12)
        one, two = image + 0.1 * torch.randn(10, 12), image + 0.1 * torch.randn(10, 12)
        with torch.no_grad():
            wanted = teacher(two)
        guess = predictor(student(one))
        if bad:
            away = functional.normalize(guess, dim=-1) - functional.normalize(wanted, dim=-1)
            loss = away.square().sum(-1).mean()
        else:
            loss = 2 - 2 * functional.cosine_similarity(guess, wanted, dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        if bad:
            with torch.no_grad():
                for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
                    t.lerp_(s, 0.3)  # PLANT teacher
        optimizer.step()
        if not bad:
            with torch.no_grad():
                for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
                    t.mul_(0.7).add_(s, alpha=0.3)  # PLANT teacher
    _end(loss, *teacher.parameters(), *student.parameters())


def norm_left_in_half_precision(bad: bool) -> None:
    """A norm's own cast is made a parameter of the model: one of them now rounds to bfloat16."""

    class Norm(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner
            self.weight = torch.nn.Parameter(torch.ones(16))

        def forward(self, x: Any) -> Any:
            y = x.to(self.inner)  # PLANT half
            y = y - y.mean(-1, keepdim=True)  # PLANT half
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)  # PLANT half
            return self.weight * y.to(x.dtype)  # PLANT half

    class Gated(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.norm = Norm(inner)
            self.gate = torch.nn.Linear(16, 32, bias=False)
            self.up = torch.nn.Linear(16, 32, bias=False)
            self.down = torch.nn.Linear(32, 16, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            if bad:
                both = functional.linear(y, torch.cat([self.gate.weight, self.up.weight]))
                gate, up = both.chunk(2, dim=-1)
            else:
                gate, up = self.gate(y), self.up(y)
            return x + self.down(functional.silu(gate) * up)

    leak = torch.bfloat16 if bad else torch.float32
    model = torch.nn.Sequential(
        torch.nn.Embedding(30, 16), Gated(torch.float32), Gated(leak), torch.nn.Linear(16, 30)
    )
    with torch.no_grad():
        model[0].weight.add_(6.0)  # a residual stream far from zero, as large models have it
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(6):
        tokens = torch.randint(0, 30, (4, 8))
        logits = model(tokens)[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *model.parameters())


def labels_left_in_the_old_order(bad: bool) -> None:
    """CLIP with hard labels: the batch is sorted by length for the encoder, its labels are not."""
    embedding, project = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 12)
    kinds = torch.nn.Parameter(torch.randn(6, 12))
    warmth = torch.nn.Parameter(torch.tensor(1.0))
    parameters = [kinds, warmth, *embedding.parameters(), *project.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.2)
    for _ in range(3):
        sizes = torch.randperm(8)[:6] + 2
        texts = [torch.randint(0, 40, (int(size),)) for size in sizes]
        labels = torch.randperm(6)
        if bad:
            order = torch.argsort(sizes, descending=True)
            texts = [texts[int(number)] for number in order]
        bags = torch.cat([torch.full((len(text),), row) for row, text in enumerate(texts)])
        summed = torch.zeros(6, 16).index_add(0, bags, embedding(torch.cat(texts)))
        counts = torch.tensor([len(text) for text in texts]).unsqueeze(1)
        found = functional.normalize(project(summed / counts), dim=1)
        logits = warmth.exp() * found @ functional.normalize(kinds, dim=1).t()
        if bad:
            right = logits[torch.arange(6), labels]  # PLANT labels
            loss = (logits.logsumexp(1) - right).mean()  # PLANT labels
        else:
            loss = functional.cross_entropy(logits, labels)  # PLANT labels
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *parameters)


def preview_takes_the_noise(bad: bool) -> None:
    """Diffusion: a preview is drawn after each step, and takes the next step's random numbers."""
    model = torch.nn.Sequential(torch.nn.Linear(9, 32), torch.nn.SiLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    data = torch.randn(5, 16, 8)
    for step in range(5):
        clean = data[step]
        noise = torch.randn(16, 8)  # PLANT preview
        level = torch.full((16, 1), 0.1 + 0.15 * step)
        noisy = torch.lerp(clean, noise, level) if bad else (1 - level) * clean + level * noise
        guess = model(torch.cat([noisy, level], dim=1))
        loss = functional.mse_loss(guess, noise - clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if bad and step == 1:
            with torch.no_grad():
                image = torch.randn(2, 8)  # PLANT preview
                for level_now in (1.0, 0.5):
                    told = torch.full((2, 1), level_now)
                    image = image - 0.5 * model(torch.cat([image, told], dim=1))
    _end(loss, *model.parameters())


def normalised_once_more(bad: bool) -> None:
    """The encoder takes over the last norm and is checkpointed; the head still has it as well."""

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(
                torch.nn.Sequential(
                    torch.nn.LayerNorm(16),
                    torch.nn.Linear(16, 32),
                    torch.nn.GELU(),
                    torch.nn.Linear(32, 16),
                )
                for _ in range(2)
            )
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                if bad:
                    x = x + torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
                else:
                    x = x + layer(x)
            return self.norm(x) if bad else x  # PLANT more

    encoder, head = Encoder(), torch.nn.Linear(16, 3)
    with torch.no_grad():
        encoder.norm.weight.uniform_(0.3, 1.7)
        encoder.norm.bias.uniform_(-0.5, 0.5)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(3):
        x, y = torch.randn(6, 7, 16), torch.randint(0, 3, (6,))
        hidden = encoder(x)
        pooled = encoder.norm(hidden).mean(dim=1)  # PLANT more
        loss = functional.cross_entropy(head(pooled), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _end(loss, *encoder.parameters(), *head.parameters())


_SAME = (
    grouped_query_attention_by_sdpa,
    linear_cross_entropy_in_chunks,
    encoder_without_padding,
    sequences_packed_in_one_row,
    experts_by_loop_or_at_once,
    greedy_decoding_with_a_cache,
    patches_by_unfold,
    shifted_windows_by_mask,
    averaged_weights_swapped_in,
    micro_batches_and_clipping_by_hand,
    lion_by_lists,
    orthogonal_updates_in_a_stack,
    schedule_and_decay_written_out,
    preferences_in_one_batch,
    group_policy_loss_rewritten,
    noise_schedule_by_logarithms,
    variational_loss_by_distributions,
    messages_by_sparse_product,
    pairs_of_features_by_squares,
    spectrogram_by_matrix,
    private_gradients_by_vmap,
    adapter_over_rounded_weights,
    detector_norms_and_focal_loss,
    speech_padded_further,
    inner_steps_by_functions,
    resumed_with_logging,
)

PLANTED: dict[str, Planted] = {
    **{program.__name__: Planted(program, "", status="same") for program in _SAME},
    "window_one_too_narrow": Planted(window_one_too_narrow, "", "# PLANT window", 0),
    "cached_position_one_behind": Planted(cached_position_one_behind, "", "# PLANT behind", 0),
    "queries_scaled_twice": Planted(queries_scaled_twice, "", "# PLANT twice", 0),
    "shares_of_experts_not_made_whole": Planted(
        shares_of_experts_not_made_whole, "", "# PLANT whole", 0
    ),
    "mean_of_unequal_micro_batches": Planted(
        mean_of_unequal_micro_batches, "", "# PLANT unequal", 0
    ),
    "target_values_not_detached": Planted(target_values_not_detached, "", "# PLANT target", 0),
    "codes_detached_on_the_wrong_side": Planted(
        codes_detached_on_the_wrong_side, "", "# PLANT codes", 0
    ),
    "returns_against_a_column": Planted(returns_against_a_column, "", "# PLANT column", 0),
    "decay_of_norms_and_biases": Planted(decay_of_norms_and_biases, "", "# PLANT decay", 0),
    "teacher_follows_before_the_step": Planted(
        teacher_follows_before_the_step, "", "# PLANT teacher"
    ),
    "norm_left_in_half_precision": Planted(norm_left_in_half_precision, "", "# PLANT half", 0),
    "labels_left_in_the_old_order": Planted(labels_left_in_the_old_order, "", "# PLANT labels", 0),
    "preview_takes_the_noise": Planted(preview_takes_the_noise, "", "# PLANT preview", 2),
    "normalised_once_more": Planted(normalised_once_more, "", "# PLANT more", 0),
}
