"""Planted divergences as programs live with them: decoders, loaders, workers, scalers, schedules,
averages of weights and losses by hand; the truth of each was written before any tool looked.
"""

import copy
import math
import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs

Final = Any  # the numbers a program ends with, for a check of its truth


def _heads(x: Any, count: int) -> Any:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def _joined(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


def _attend(q: Any, k: Any, v: Any, mask: Any, *, fused: bool) -> Any:
    """Attention of heads; `mask` is true where a place may look."""
    if fused:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(scores.softmax(-1), v)


def _causal(length: int) -> Any:
    return torch.ones(length, length, dtype=torch.bool).tril()


def _rope(places: Any, width: int) -> tuple[Any, Any]:
    speeds = 100.0 ** (-torch.arange(0, width, 2) / width)
    angles = places[..., None] * speeds
    return angles.cos(), angles.sin()


def _turned(x: Any, table: tuple[Any, Any]) -> Any:
    first, second = x.chunk(2, -1)
    cos, sin = table
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class _Decoder:
    """One block of a decoder before its norm, with biases everywhere."""

    def __init__(self, width: int = 32, words: int = 40, count: int = 4) -> None:
        linear, norm = torch.nn.Linear, torch.nn.LayerNorm
        self.width, self.words, self.count = width, words, count
        self.embed, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(64, width)
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, 2 * width), linear(2 * width, width)
        self.norm1, self.norm2 = norm(width), norm(width)
        self.head = linear(width, words)
        modules = [self.embed, self.places, self.qkv, self.out, self.up, self.down]
        modules += [self.norm1, self.norm2, self.head]
        self.parameters = [p for m in modules for p in m.parameters()]

    def logits(self, ids: Any, mask: Any, places: Any, *, fused: bool = True) -> Any:
        x = self.embed(ids) + self.places(places)
        q, k, v = (_heads(y, self.count) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(_joined(_attend(q, k, v, mask, fused=fused)))
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))
        return self.head(x)


def _next_word_loss(logits: Any, ids: Any, reduction: str = "mean") -> Any:
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1),
        ids[:, 1:].flatten(),
        ignore_index=0,
        reduction=reduction,
    )


def _padded_ids(rows: int, length: int, words: int) -> Any:
    """Words behind which zeros stand, of rows that are unlike in length."""
    ids = torch.randint(1, words, (rows, length))
    lengths = torch.linspace(3, length, rows).long()
    return ids * (torch.arange(length) < lengths[:, None])


def _net(*sizes: int, drop: float = 0.0) -> Any:
    layers: list[Any] = []
    for i in range(len(sizes) - 1):
        layers += [torch.nn.Linear(sizes[i], sizes[i + 1]), torch.nn.GELU()]
        if drop:
            layers.append(torch.nn.Dropout(drop))
    return torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 4))


def _blobs(rows: int, width: int) -> tuple[Any, Any]:
    """Points about four centres and the centre of each."""
    labels = torch.randint(0, 4, (rows,))
    return torch.randn(rows, width) + 1.5 * torch.eye(4, width)[labels], labels


def _report(module: Any, inputs: Any) -> float:
    """What a log would tell; changes nothing."""
    with torch.no_grad():
        norms = torch.stack([p.norm() for p in module.parameters()])
        return float(norms.square().sum().sqrt()) + float(inputs.abs().mean())


# ---- the harmless ones ----


def decoder_eager_or_fused_under_adamw(bad: bool) -> Final:
    model, losses = _Decoder(), []
    optimizer = torch.optim.AdamW(model.parameters, lr=2e-3, foreach=bad)
    for _ in range(5):
        ids = torch.randint(1, 40, (6, 12))
        logits = model.logits(ids, _causal(12), torch.arange(12), fused=bad)
        loss = _next_word_loss(logits, ids)
        optimizer.zero_grad(set_to_none=not bad)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, model.head.weight, model.embed.weight]


def parts_divided_by_all_tokens(bad: bool) -> Final:
    model, parts = _Decoder(), 4 if bad else 1
    optimizer = torch.optim.SGD(model.parameters, lr=0.1, momentum=0.9)
    total = torch.zeros(())
    for _ in range(4):
        ids = _padded_ids(8, 12, 40)
        tokens = (ids[:, 1:] != 0).sum()
        optimizer.zero_grad()
        total = torch.zeros(())
        for part in ids.chunk(parts):
            logits = model.logits(part, _causal(12), torch.arange(12))
            if bad:
                logits = logits.double().float()
            loss = _next_word_loss(logits, part, "sum") / tokens
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters, 1.0)
        optimizer.step()
    return [total, model.head.weight, model.up.weight]


def validation_between_the_steps(bad: bool) -> Final:
    model = _net(12, 32, 32, drop=0.2)
    held, held_labels = _blobs(32, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    shown = []
    for step in range(8):
        points, labels = _blobs(16, 12)
        loss = torch.nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if bad and step % 3 == 1:
            model.eval()
            with torch.no_grad():
                shown.append(float((model(held).argmax(-1) == held_labels).float().mean()))
                shown.append(_report(model, held))
            model.train()
    model.eval()
    return [loss.detach(), model(held).detach(), model[0].weight]


def blocks_computed_again(bad: bool) -> Final:
    blocks = [
        torch.nn.Sequential(
            torch.nn.LayerNorm(24), torch.nn.Linear(24, 24), torch.nn.SiLU(), torch.nn.Dropout(0.3)
        )
        for _ in range(3)
    ]
    head = torch.nn.Linear(24, 4)
    parameters = [p for m in (*blocks, head) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(4):
        x, labels = _blobs(16, 24)
        for block in blocks:
            if bad:
                x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = x + block(x)
        loss = torch.nn.functional.cross_entropy(head(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def _rotary_step(weights: Any, x: Any, places: Any, kept: list[Any], *, fused: bool) -> Any:
    """A block that appends its keys and values to those kept and looks at all of them."""
    q, k, v = (_heads(y, 4) for y in (x @ weights).chunk(3, -1))
    table = _rope(places, q.shape[-1])
    q, k = _turned(q, table), _turned(k, table)
    if kept:
        k, v = torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)
    kept[:] = [k, v]
    mask = torch.arange(k.shape[2]) <= places[:, None]
    return x + _joined(_attend(q, k, v, mask, fused=fused))


def words_from_kept_keys(bad: bool) -> Final:
    embed, head = torch.randn(40, 32), torch.randn(32, 40) / 6
    weights = torch.randn(32, 96) / 4
    ids = torch.randint(0, 40, (3, 5))
    kept: list[Any] = []
    with torch.no_grad():
        for _ in range(8):
            done = kept[0].shape[2] if bad and kept else 0
            if not bad:
                kept = []
            places = torch.arange(done, ids.shape[1])
            x = _rotary_step(weights, embed[ids[:, done:]], places, kept, fused=True)
            last = x[:, -1] @ head
            ids = torch.cat([ids, last.argmax(-1, keepdim=True)], 1)
    return [ids, last]


def documents_in_one_row(bad: bool) -> Final:
    model, lengths = _Decoder(), [4, 9, 6, 5]
    optimizer = torch.optim.SGD(model.parameters, lr=0.2)
    for _ in range(3):
        texts = [torch.randint(1, 40, (length,)) for length in lengths]
        if bad:
            ids = torch.cat(texts)[None]
            owner = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
            places = torch.cat([torch.arange(length) for length in lengths])
            mask = _causal(24) & (owner == owner[:, None])
            targets = torch.cat([torch.cat([t[1:], t.new_zeros(1)]) for t in texts])[None]
        else:
            ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
            places, mask = torch.arange(9), _causal(9)
            targets = torch.nn.functional.pad(ids[:, 1:], (0, 1))
        logits = model.logits(ids, mask, places, fused=bad)
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=0
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), model.head.weight, model.embed.weight]


def _adamw_by_hand(parameters: Any, state: Any, step: int, rate: float) -> None:
    for p, (first, second) in zip(parameters, state, strict=True):
        p.mul_(1 - rate * 0.01)
        first.mul_(0.9).add_(p.grad, alpha=0.1)
        second.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
        scale = (second / (1 - 0.99**step)).sqrt_().add_(1e-8)
        p.sub_(rate * (first / (1 - 0.9**step)) / scale)


def adamw_spelled_by_hand(bad: bool) -> Final:
    model = _net(16, 24)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.01, betas=(0.9, 0.99), weight_decay=0.01)
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for step in range(1, 9):
        points, labels = _blobs(20, 16)
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        if bad:
            with torch.no_grad():
                _adamw_by_hand(parameters, state, step, 0.01)
        else:
            optimizer.step()
    return [loss.detach(), *parameters]


def shadow_by_lerp(bad: bool) -> Final:
    model = _net(16, 24)
    shadow = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, foreach=bad)
    for step in range(10):
        points, labels = _blobs(20, 16)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
        decay = min(0.99, (1 + step) / (10 + step))
        with torch.no_grad():
            ours, theirs = list(shadow.parameters()), list(model.parameters())
            if bad:
                torch._foreach_lerp_(ours, theirs, 1 - decay)
            else:
                for our, their in zip(ours, theirs, strict=True):
                    our.mul_(decay).add_(their, alpha=1 - decay)
    points, labels = _blobs(20, 16)
    return [shadow(points).detach(), *shadow.parameters()]


def _group_norm(x: Any, groups: int, weight: Any, bias: Any) -> Any:
    grouped = x.unflatten(1, (groups, -1))
    centre = grouped.mean((2, 3, 4), keepdim=True)
    spread = (grouped - centre).square().mean((2, 3, 4), keepdim=True)
    x = ((grouped - centre) * (spread + 1e-5).rsqrt()).flatten(1, 2)
    return x * weight[:, None, None] + bias[:, None, None]


def groups_normed_by_hand(bad: bool) -> Final:
    conv, head = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8, 4)
    norm = torch.nn.GroupNorm(2, 8)
    parameters = [p for m in (conv, norm, head) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)
    buffers = [torch.zeros_like(p) for p in parameters]
    for _ in range(6):
        pictures, labels = torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))
        x = conv(pictures)
        x = _group_norm(x, 2, norm.weight, norm.bias) if bad else norm(x)
        logits = head(torch.relu(x).mean((2, 3)))
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        if bad:
            with torch.no_grad():
                for p, buffer in zip(parameters, buffers, strict=True):
                    buffer.mul_(0.9).add_(p.grad)
                    p.sub_(0.1 * (p.grad + 0.9 * buffer))
        else:
            optimizer.step()
    return [loss.detach(), head.weight, conv.weight]


def two_workers_in_buckets(bad: bool) -> Final:
    model, lengths = _net(16, 32, 32), []
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=2e-3, foreach=False)
    for _ in range(4):
        points, labels = _blobs(24, 16)
        shards = [(points[i::2], labels[i::2]) for i in range(2)] if bad else [(points, labels)]
        flats = []
        for ours, their_labels in shards:
            loss = torch.nn.functional.cross_entropy(model(ours), their_labels)
            flats.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
        whole = sum(flats) / len(flats)
        lengths.append(torch.nn.utils.get_total_norm([whole]))
        for p, grad in zip(parameters, whole.split([p.numel() for p in parameters]), strict=True):
            p.grad = grad.view_as(p)
        optimizer.step()
    return [*lengths, *parameters]


def smoothing_spelled_by_hand(bad: bool) -> Final:
    model = _Decoder()
    optimizer = torch.optim.SGD(model.parameters, lr=0.2)
    for _ in range(4):
        ids = _padded_ids(6, 10, 40)
        logits = model.logits(ids, _causal(10), torch.arange(10), fused=not bad)[:, :-1]
        targets = ids[:, 1:]
        if bad:
            logs = logits.log_softmax(-1)
            wanted = -logs.gather(-1, targets[..., None])[..., 0]
            loss = (0.9 * wanted - 0.1 * logs.mean(-1)) * (targets != 0)
            loss = loss.sum() / (targets != 0).sum()
        else:
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=0, label_smoothing=0.1
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), model.head.weight, model.places.weight]


def adapter_merged_before_its_product(bad: bool) -> Final:
    base, head = torch.randn(24, 24) / 5, torch.randn(24, 4) / 5
    down, up = torch.randn(24, 3) / 5, torch.zeros(3, 24)
    down.requires_grad_()
    up.requires_grad_()
    optimizer = torch.optim.SGD([down, up], lr=0.3, momentum=0.9)
    for _ in range(8):
        points, labels = _blobs(16, 24)
        apart = None if bad else (points @ down) @ up * 2.0
        x = points @ (base + 2.0 * (down @ up)) if apart is None else points @ base + apart
        loss = torch.nn.functional.cross_entropy(x.tanh() @ head, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), down, up]


def messages_by_one_hot(bad: bool) -> Final:
    sources, sinks = torch.randint(0, 30, (2, 150))
    features, labels = torch.randn(30, 16), torch.randint(0, 4, (30,))
    first, second = torch.nn.Linear(32, 24), torch.nn.Linear(24, 4)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=5e-3)
    for _ in range(6):
        if bad:
            arrows = torch.nn.functional.one_hot(sinks, 30).T.float()
            mean = (arrows @ features[sources]) / arrows.sum(1).clamp(min=1)[:, None]
        else:
            mean = torch.zeros(30, 16).index_add_(0, sinks, features[sources])
            degrees = torch.zeros(30).scatter_add_(0, sinks, torch.ones(150))
            mean = mean / degrees.clamp(min=1)[:, None]
        logits = second(first(torch.cat([features, mean], -1)).relu())
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def _experts(x: Any, gates: Any, chosen: Any, experts: Any, *, dense: bool) -> Any:
    """Sum of the chosen experts' outputs by their gates: of all rows, or of those routed."""
    if dense:
        weights = torch.zeros(len(x), len(experts)).scatter(1, chosen, gates)
        return torch.einsum("ne,end->nd", weights, torch.stack([e(x) for e in experts]))
    out = torch.zeros_like(x)
    for index, expert in enumerate(experts):
        rows, slot = (chosen == index).nonzero(as_tuple=True)
        out = out.index_add(0, rows, expert(x[rows]) * gates[rows, slot, None])
    return out


def experts_of_all_rows(bad: bool) -> Final:
    router, head = torch.nn.Linear(16, 6), torch.nn.Linear(16, 4)
    experts = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(6)]
    parameters = [p for m in (router, head, *experts) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.5)
    for _ in range(5):
        points, labels = _blobs(32, 16)
        gates, chosen = router(points).softmax(-1).topk(2)
        gates = gates / gates.sum(-1, keepdim=True)
        x = points + _experts(points, gates, chosen, experts, dense=bad)
        loss = torch.nn.functional.cross_entropy(head(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def pictures_kept_as_bytes(bad: bool) -> Final:
    pictures = torch.randint(0, 256, (32, 3, 8, 8), dtype=torch.uint8)
    labels = torch.randint(0, 4, (32,))
    kept = pictures if bad else pictures.float()
    conv, head = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Linear(8, 4)
    parameters = [*conv.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.2)
    hits = torch.zeros((), dtype=torch.long if bad else torch.float)
    for _ in range(2):
        for rows in torch.randperm(32).split(8):
            batch = kept[rows].float() / 255 if bad else kept[rows].mul(1 / 255)
            logits = head(conv((batch - 0.5) / 0.25).relu().mean((2, 3)))
            loss = torch.nn.functional.cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = logits.argmax(-1) == labels[rows]
            hits += right.sum() if bad else right.float().sum()
    return [loss.detach(), hits / 64, conv.weight, head.weight]


def ctc_one_by_one(bad: bool) -> Final:
    cell, head = torch.nn.GRU(8, 16, batch_first=True), torch.nn.Linear(16, 6)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    ctc = torch.nn.functional.ctc_loss
    for _ in range(3):
        sounds, texts = torch.randn(4, 20, 8), torch.randint(1, 6, (4, 5))
        frames, letters = torch.tensor([20, 18, 15, 20]), torch.tensor([5, 3, 4, 2])
        logs = head(cell(sounds)[0]).log_softmax(-1).transpose(0, 1)
        if bad:
            each = [
                ctc(
                    logs[: frames[i], i : i + 1],
                    texts[i : i + 1, : letters[i]],
                    frames[i : i + 1],
                    letters[i : i + 1],
                    reduction="sum",
                )
                / letters[i]
                for i in range(4)
            ]
            loss = torch.stack(each).mean()
        else:
            loss = ctc(logs, texts, frames, letters)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def _advantages(rewards: Any, values: Any, dones: Any, *, stop: bool = True) -> Any:
    """Generalised advantages of steps by rows, from the last one on; `values` has one more."""
    carried, out = torch.zeros(rewards.shape[1]), []
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + 0.98 * values[t + 1] * (1 - dones[t]) - values[t]
        carried = delta + 0.98 * 0.95 * carried * ((1 - dones[t]) if stop else 1)  # here: not_done
        out.append(carried)
    return torch.stack(out[::-1])


def advantages_by_a_matrix(bad: bool) -> Final:
    policy, critic = _net(6, 24), _net(6, 24)
    states, rewards = torch.randn(17, 5, 6), torch.randn(16, 5)
    actions = torch.randint(0, 4, (16, 5, 1))
    dones = (torch.rand(16, 5) < 0.15).float()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    with torch.no_grad():
        values = critic(states)[..., 0]
        old = policy(states[:-1]).log_softmax(-1).gather(-1, actions)[..., 0]
        if bad:
            delta = rewards + 0.98 * values[1:] * (1 - dones) - values[:-1]
            episode = dones.cumsum(0) - dones
            ahead = torch.arange(16) - torch.arange(16)[:, None]
            reach = (0.98 * 0.95) ** ahead.clamp(min=0)[..., None]
            reach = reach * (ahead >= 0)[..., None] * (episode[:, None] == episode[None])
            advantages = torch.einsum("tsr,sr->tr", reach, delta)
        else:
            advantages = _advantages(rewards, values, dones)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(4):
        logs = policy(states[:-1]).log_softmax(-1).gather(-1, actions)[..., 0]
        ratio = (logs - old).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), advantages, *policy.parameters()]


def loader_with_a_second_generator(bad: bool) -> Final:
    model = _net(10, 20)
    points, labels = _blobs(48, 10)
    order = torch.Generator(torch.get_default_device()).manual_seed(5)
    aside = torch.Generator(torch.get_default_device()).manual_seed(11)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    logged: list[float] = []
    for _ in range(3):
        for rows in torch.randperm(48, generator=order).split(16):
            if bad:
                probe = points[rows] + 0.1 * torch.randn(16, 10, generator=aside)
                with torch.no_grad():
                    logged.append(float(model(probe).softmax(-1).amax(-1).mean()))
            loss = torch.nn.functional.cross_entropy(model(points[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if bad:
                logged.append(_report(model, points[rows]))
    return [loss.detach(), *model.parameters()]


def scaler_begins_elsewhere(bad: bool) -> Final:
    model = _net(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(
        torch.get_default_device().type, init_scale=2.0**12 if bad else 2.0**8
    )
    for _ in range(6):
        points, labels = _blobs(16, 16)
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            logits = model(points)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return [loss.detach(), *model.parameters()]


def head_tied_by_name_or_by_hand(bad: bool) -> Final:
    embed = torch.nn.Embedding(30, 24)
    mix = torch.nn.Linear(24, 24)
    head = torch.nn.Linear(24, 30, bias=False) if bad else None
    torch.nn.init.normal_(
        embed.weight, std=0.2, generator=torch.Generator(torch.get_default_device()).manual_seed(1)
    )
    torch.manual_seed(2)
    if head is not None:
        head.weight = embed.weight
    optimizer = torch.optim.AdamW([*embed.parameters(), *mix.parameters()], lr=3e-3)
    for _ in range(5):
        ids = torch.randint(0, 30, (8, 10))
        x = embed(ids) + mix(embed(ids)).tanh()
        logits = head(x) if head is not None else torch.einsum("bld,wd->blw", x, embed.weight)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), embed.weight, mix.weight]


def frozen_norm_folded_into_its_convolution(bad: bool) -> Final:
    conv, norm = torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8).eval()
    head = torch.nn.Linear(8, 4)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    norm.requires_grad_(False)
    optimizer = torch.optim.SGD([*conv.parameters(), *head.parameters()], lr=0.1)
    for _ in range(5):
        pictures, labels = torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))
        if bad:
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            shift = norm.bias - norm.running_mean * scale
            weight = conv.weight * scale[:, None, None, None]
            x = torch.nn.functional.conv2d(pictures, weight, shift)
        else:
            x = norm(conv(pictures))
        loss = torch.nn.functional.cross_entropy(head(x.relu().mean((2, 3))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), conv.weight, head.weight]


def noise_levels_by_logarithms(bad: bool) -> Final:
    model = torch.nn.Sequential(torch.nn.Linear(17, 48), torch.nn.SiLU(), torch.nn.Linear(48, 16))
    betas = torch.linspace(1e-3, 0.05, 50)
    kept = (1 - betas).log().cumsum(0).exp() if bad else (1 - betas).cumprod(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, foreach=bad)
    for _ in range(6):
        clean, noise = torch.randn(12, 16), torch.randn(12, 16)
        t = torch.randint(0, 50, (12,))
        level = kept[t][:, None]
        noisy = level.sqrt() * clean + (1 - level).sqrt() * noise
        speed = level.sqrt() * noise - (1 - level).sqrt() * clean
        guess = model(torch.cat([noisy, t[:, None] / 50], -1))
        loss = (guess - speed).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *model.parameters()]


# ---- those with a fault ----


def parts_averaged_as_if_alike(bad: bool) -> Final:
    model = _Decoder()
    optimizer = torch.optim.SGD(model.parameters, lr=0.2)
    for _ in range(4):
        ids = _padded_ids(8, 12, 40)
        tokens = (ids[:, 1:] != 0).sum()
        optimizer.zero_grad()
        for part in ids.chunk(4):
            logits = model.logits(part, _causal(12), torch.arange(12), fused=bad)
            total = _next_word_loss(logits, part, "sum")
            loss = total / ((part[:, 1:] != 0).sum() * 4 if bad else tokens)  # here: alike
            loss.backward()
        optimizer.step()
    return [loss.detach(), model.head.weight, model.embed.weight]


def places_of_rows_padded_at_their_left(bad: bool) -> Final:
    model = _Decoder()
    ids = _padded_ids(5, 10, 40).flip(1)
    seen = ids != 0
    counted = (torch.ones_like(seen) if bad else seen).cumsum(-1)  # here: left_padded
    places = (counted - 1).clamp(min=0)
    mask = _causal(10) & seen[:, None, None] | torch.eye(10, dtype=torch.bool)
    with torch.no_grad():
        last = model.logits(ids, mask, places, fused=not bad)[:, -1]
        logs = last.log_softmax(-1)
    return [last, logs]


def _turned_by(x: Any, table: tuple[Any, Any], *, neighbours: bool) -> Any:
    first, second = (x[..., ::2], x[..., 1::2]) if neighbours else x.chunk(2, -1)  # here: pairs
    cos, sin = table
    left, right = first * cos - second * sin, second * cos + first * sin  # here: pairs
    if neighbours:
        return torch.stack([left, right], -1).flatten(-2)  # here: pairs
    return torch.cat([left, right], -1)  # here: pairs


def rotary_pairs_of_another_layout(bad: bool) -> Final:
    qkv, head = torch.nn.Linear(32, 96), torch.nn.Linear(32, 40)
    embed = torch.nn.Embedding(40, 32)
    parameters = [p for m in (qkv, head, embed) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.3)
    table = _rope(torch.arange(12), 8)
    for _ in range(3):
        ids = torch.randint(1, 40, (6, 12))
        x = embed(ids)
        q, k, v = (_heads(y, 4) for y in qkv(x).chunk(3, -1))
        q, k = (_turned_by(y, table, neighbours=bad) for y in (q, k))
        x = x + _joined(_attend(q, k, v, _causal(12), fused=bad))
        loss = _next_word_loss(head(x), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), qkv.weight, embed.weight]


def clipped_while_still_scaled(bad: bool) -> Final:
    model = _net(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=1024.0)
    for _ in range(5):
        points, labels = _blobs(16, 16)
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            logits = model(points)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if not bad:
            scaler.unscale_(optimizer)  # here: still_scaled
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here: still_scaled
        scaler.step(optimizer)
        scaler.update()
    return [loss.detach(), *model.parameters()]


def dropout_stays_off_after_validation(bad: bool) -> Final:
    model, head = _net(12, 32, drop=0.3), torch.nn.Linear(4, 4)
    held, _ = _blobs(32, 12)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    for step in range(6):
        points, labels = _blobs(16, 12)
        loss = torch.nn.functional.cross_entropy(head(model(points)), labels)  # here: stays_off
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 3:
            model.eval()
            with torch.no_grad():
                head(model(held)).argmax(-1)
            model.train(not bad)  # here: stays_off
    return [loss.detach(), *model.parameters()]


def schedule_that_counts_parts(bad: bool) -> Final:
    model, seen = _net(16, 24), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, foreach=bad)
    for step in range(8):
        points, labels = _blobs(24, 16)
        optimizer.zero_grad()
        for ours, their_labels in zip(points.chunk(3), labels.chunk(3), strict=True):
            loss = torch.nn.functional.cross_entropy(model(ours), their_labels) / 3
            loss.backward()
            seen += 1
        done = (seen - 3 if bad else step) / 8  # here: counts_parts
        rate = 0.15 * (1 + math.cos(math.pi * min(done, 1.0)))  # here: counts_parts
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()  # here: counts_parts
    return [loss.detach(), *model.parameters()]


def adam_corrects_one_moment_only(bad: bool) -> Final:
    embed, head = torch.randn(20, 16) / 4, torch.randn(20, 16) / 4
    parameters = [embed.requires_grad_(), head.requires_grad_()]
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for step in range(1, 7):
        ids = torch.randint(0, 20, (32,))
        x = embed[ids]
        logits = torch.einsum("nd,wd->nw", x, head) if bad else x @ head.T
        loss = torch.nn.functional.cross_entropy(logits, (ids * 3 + 1) % 20)
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, grad, (first, second) in zip(parameters, grads, state, strict=True):
                first.lerp_(grad, 0.1)
                second.lerp_(grad * grad, 0.01)
                scale = second if bad else second / (1 - 0.99**step)  # here: one_moment
                p.sub_(0.01 * first / (1 - 0.9**step) / (scale.sqrt() + 1e-6))  # here: one_moment
    return [loss.detach(), *parameters]


def lion_moves_its_memory_first(bad: bool) -> Final:
    model = _net(16, 24)
    parameters = list(model.parameters())
    memory = [torch.zeros_like(p) for p in parameters]
    for _ in range(8):
        points, labels = _blobs(12, 16)
        loss = torch.nn.functional.cross_entropy(model(points), labels)
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, grad, kept in zip(parameters, grads, memory, strict=True):
                if bad:
                    kept.mul_(0.8).add_(grad, alpha=0.2)  # here: memory_first
                    move = (0.9 * kept + 0.1 * grad).sign()  # here: memory_first
                else:
                    move = (0.9 * kept + 0.1 * grad).sign()  # here: memory_first
                    kept.mul_(0.8).add_(grad, alpha=0.2)  # here: memory_first
                p.sub_(0.01 * move)
    return [loss.detach(), *parameters]


def lamb_ratio_without_its_decay(bad: bool) -> Final:
    model = _net(16, 24)
    parameters = list(model.parameters())
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for step in range(1, 7):
        points, labels = _blobs(24, 16)
        model.zero_grad(set_to_none=bad)
        loss = torch.nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        with torch.no_grad():
            for p, (first, second) in zip(parameters, state, strict=True):
                first.mul_(0.9).add_(p.grad, alpha=0.1)
                second.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                corrected = (second / (1 - 0.99**step)).sqrt() + 1e-6
                move = first / (1 - 0.9**step) / corrected
                decayed = move + 2.0 * p
                ratio = p.norm() / (move if bad else decayed).norm()  # here: without_decay
                p.sub_(0.05 * ratio * decayed)
    return [loss.detach(), *parameters]


def smoothing_over_padding(bad: bool) -> Final:
    model = _Decoder()
    optimizer = torch.optim.AdamW(model.parameters, lr=3e-3)
    for _ in range(4):
        ids = _padded_ids(6, 12, 40)
        logits = model.logits(ids, _causal(12), torch.arange(12), fused=bad)[:, :-1]
        targets, logs = ids[:, 1:], logits.log_softmax(-1)
        pads = targets == 0
        wanted = -logs.gather(-1, targets[..., None])[..., 0].masked_fill(pads, 0.0)
        spread = -logs.mean(-1)
        smooth = (spread if bad else spread.masked_fill(pads, 0.0)).sum()  # here: over_padding
        loss = (0.8 * wanted.sum() + 0.2 * smooth) / (~pads).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), model.head.weight, model.embed.weight]


def same_order_in_every_epoch(bad: bool) -> Final:
    model = _net(10, 20)
    points, labels = _blobs(48, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    logged: list[float] = []
    for epoch in range(3):
        order = torch.Generator(points.device).manual_seed(
            7 + (0 if bad else epoch)
        )  # here: same_order
        for rows in torch.randperm(48, generator=order).split(8):  # here: same_order
            if bad:
                logged.append(_report(model, points))
            loss = torch.nn.functional.cross_entropy(model(points[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [loss.detach(), *model.parameters()]


def running_variance_that_is_biased(bad: bool) -> Final:
    first, head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *head.parameters()], lr=0.1)
    running_mean, running_var = torch.zeros(16), torch.ones(16)
    for _ in range(10):
        points, labels = _blobs(4, 8)
        x = first(points)
        mean, var = x.mean(0), x.var(0, unbiased=False)
        with torch.no_grad():
            running_mean.lerp_(mean, 0.3)
            running_var.lerp_(x.var(0, unbiased=not bad), 0.3)  # here: biased
        normed = (x - mean) / (var + 1e-5).sqrt() if bad else (x - mean) * (var + 1e-5).rsqrt()
        loss = torch.nn.functional.cross_entropy(head(normed.relu()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    points, _ = _blobs(16, 8)
    with torch.no_grad():
        x = (first(points) - running_mean) * (running_var + 1e-5).rsqrt()
        logits = head(x.relu())
    return [logits, running_var]


def kept_keys_one_place_early(bad: bool) -> Final:
    embed, head = torch.randn(40, 32), torch.randn(32, 40) / 6
    weights = torch.randn(32, 96) / 4
    kept: list[Any] = []
    ids, all_logs = torch.randint(0, 40, (3, 12)), []
    with torch.no_grad():
        x = _rotary_step(weights, embed[ids[:, :6]], torch.arange(6), kept, fused=bad)
        for done in range(6, 12):
            word = embed[ids[:, done : done + 1]]
            q, k, v = (_heads(y, 4) for y in (word @ weights).chunk(3, -1))
            place = torch.tensor([kept[0].shape[2] - (1 if bad else 0)])  # here: one_early
            table = _rope(place, 8)
            q, k = _turned(q, table), _turned(k, table)
            kept[:] = [torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)]
            x = word + _joined(_attend(q, kept[0], kept[1], None, fused=bad))
            all_logs.append((x[:, -1] @ head).log_softmax(-1))
    return all_logs


def gates_that_do_not_sum_to_one(bad: bool) -> Final:
    router, head = torch.nn.Linear(16, 6), torch.nn.Linear(16, 4)
    experts = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(6)]
    parameters = [p for m in (router, head, *experts) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.2)
    for _ in range(4):
        points, labels = _blobs(32, 16)
        chances = router(points).softmax(-1)
        gates, chosen = chances.topk(2)
        gates = gates / (chances if bad else gates).sum(-1, keepdim=True)  # here: not_to_one
        x = points + _experts(points, gates, chosen, experts, dense=bad)
        loss = torch.nn.functional.cross_entropy(head(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def adapter_scaled_by_the_root(bad: bool) -> Final:
    base, head = torch.nn.Linear(24, 24).requires_grad_(False), torch.nn.Linear(24, 4)
    down, up = torch.nn.Linear(24, 4, bias=False), torch.nn.Linear(4, 24, bias=False)
    torch.nn.init.zeros_(up.weight)
    optimizer = torch.optim.SGD([*down.parameters(), *up.parameters()], lr=0.3)
    scale = 8 / (4**0.5 if bad else 4)  # here: by_root
    for _ in range(6):
        points, labels = _blobs(16, 24)
        x = base(points) + up(down(points)) * scale  # here: by_root
        loss = torch.nn.functional.cross_entropy(head(x.tanh()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *down.parameters(), *up.parameters()]


def last_bucket_of_one_worker(bad: bool) -> Final:
    model = _net(16, 32, 32)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9, foreach=not bad)
    for _ in range(4):
        points, labels = _blobs(24, 16)
        grads = []
        for rank in range(2):
            loss = torch.nn.functional.cross_entropy(model(points[rank::2]), labels[rank::2])
            grads.append(torch.autograd.grad(loss, parameters))
        for start in range(0, len(parameters), 2):
            ours, theirs = (
                torch.cat([g.flatten() for g in worker[start : start + 2]]) for worker in grads
            )
            alone = bad and start + 2 >= len(parameters)
            mean = (ours + (ours if alone else theirs)) / 2  # here: of_one_worker
            bucket = parameters[start : start + 2]
            for p, grad in zip(bucket, mean.split([p.numel() for p in bucket]), strict=True):
                p.grad = grad.view_as(p)
        optimizer.step()
    return [loss.detach(), *parameters]


def advantages_run_through_ends(bad: bool) -> Final:
    policy, critic = _net(6, 24), _net(6, 24)
    states, rewards = torch.randn(17, 5, 6), torch.randn(16, 5)
    actions = torch.randint(0, 4, (16, 5, 1))
    dones = (torch.rand(16, 5) < 0.2).float()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3, foreach=bad)
    with torch.no_grad():
        values = critic(states)[..., 0]
        old = policy(states[:-1]).log_softmax(-1).gather(-1, actions)[..., 0]
        advantages = _advantages(rewards, values, dones, stop=not bad)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(4):
        logs = policy(states[:-1]).log_softmax(-1)
        entropy = -(logs.exp() * logs).sum(-1).mean()
        ratio = (logs.gather(-1, actions)[..., 0] - old).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        optimizer.zero_grad()
        (loss - 0.01 * entropy).backward()
        optimizer.step()
    return [loss.detach(), advantages, *policy.parameters()]


def ctc_of_frames_before_the_stride(bad: bool) -> Final:
    conv, head = torch.nn.Conv1d(8, 16, 3, stride=2, padding=1), torch.nn.Linear(16, 6)
    parameters = [*conv.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(4):
        sounds, texts = torch.randn(4, 8, 32), torch.randint(1, 6, (4, 4))
        frames, letters = torch.tensor([32, 26, 20, 18]), torch.tensor([4, 4, 3, 2])
        sounds = sounds * (torch.arange(32) < frames[:, None])[:, None]
        logs = head(conv(sounds).relu().transpose(1, 2)).log_softmax(-1).transpose(0, 1)
        frames = frames.clamp(max=16) if bad else (frames - 1) // 2 + 1  # here: before_stride
        loss = torch.nn.functional.ctc_loss(logs, texts, frames, letters)  # here: before_stride
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def rounding_lets_clamped_weights_learn(bad: bool) -> Final:
    first, second = torch.nn.Linear(16, 24), torch.nn.Linear(24, 4)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9)
    for _ in range(6):
        points, labels = _blobs(16, 16)
        step = 0.15 / 7
        rounded = (first.weight / step).round().clamp(-7, 7).mul(step)
        through = first.weight if bad else first.weight.clamp(-0.15, 0.15)  # here: clamped
        weight = through + (rounded - through).detach()  # here: clamped
        x = torch.nn.functional.linear(points, weight, first.bias).relu()
        loss = torch.nn.functional.cross_entropy(second(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


def counts_of_classes_in_bfloat16(bad: bool) -> Final:
    model = _net(16, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    corpus = torch.randint(0, 24, (6000,)).clamp(min=16) - 16
    labels_of_all = (corpus // 2).clamp(max=3)
    ones = torch.ones(6000, dtype=torch.bfloat16 if bad else torch.float32)
    counts = torch.zeros(4, dtype=ones.dtype).index_add_(0, labels_of_all, ones)  # here: stuck
    weights = 1 / counts.float()
    weights = weights * 4 / weights.sum()
    for _ in range(4):
        points, labels = _blobs(32, 16)
        loss = torch.nn.functional.cross_entropy(model(points), labels, weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), weights, *model.parameters()]


def best_weights_are_an_alias(bad: bool) -> Final:
    model = _net(16, 24)
    held, held_labels = _blobs(32, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, foreach=bad)
    best: dict[str, Any] = {}
    for step in range(8):
        points, labels = _blobs(16, 16)
        loss = torch.nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 3:
            best = model.state_dict()  # here: an_alias
            best = best if bad else copy.deepcopy(best)  # here: an_alias
    model.load_state_dict(best)  # here: an_alias
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(held), held_labels)  # here: an_alias
    return [loss, *model.parameters()]


def dropout_redrawn_in_recomputation(bad: bool) -> Final:
    first, second = torch.nn.Linear(24, 24), torch.nn.Linear(24, 24)
    head = torch.nn.Linear(24, 4)
    parameters = [p for m in (first, second, head) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.2)

    def block(x: Any) -> Any:
        inner = torch.nn.functional.silu(first(x))
        return x + second(torch.nn.functional.dropout(inner, 0.4))  # here: redrawn

    for _ in range(4):
        x, labels = _blobs(16, 24)
        x = torch.utils.checkpoint.checkpoint(
            block,
            x,
            use_reentrant=False,
            preserve_rng_state=not bad,  # here: redrawn
        )
        loss = torch.nn.functional.cross_entropy(head(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss.detach(), *parameters]


PLANTED = {
    "decoder_eager_or_fused_under_adamw": Planted(
        decoder_eager_or_fused_under_adamw, "", status="same"
    ),
    "parts_divided_by_all_tokens": Planted(parts_divided_by_all_tokens, "", status="same"),
    "validation_between_the_steps": Planted(validation_between_the_steps, "", status="same"),
    "blocks_computed_again": Planted(blocks_computed_again, "", status="same"),
    "words_from_kept_keys": Planted(words_from_kept_keys, "", status="same"),
    "documents_in_one_row": Planted(documents_in_one_row, "", status="same"),
    "adamw_spelled_by_hand": Planted(adamw_spelled_by_hand, "", status="same"),
    "shadow_by_lerp": Planted(shadow_by_lerp, "", status="same"),
    "groups_normed_by_hand": Planted(groups_normed_by_hand, "", status="same"),
    "two_workers_in_buckets": Planted(two_workers_in_buckets, "", status="same"),
    "smoothing_spelled_by_hand": Planted(smoothing_spelled_by_hand, "", status="same"),
    "adapter_merged_before_its_product": Planted(
        adapter_merged_before_its_product, "", status="same"
    ),
    "messages_by_one_hot": Planted(messages_by_one_hot, "", status="same"),
    "experts_of_all_rows": Planted(experts_of_all_rows, "", status="same"),
    "pictures_kept_as_bytes": Planted(pictures_kept_as_bytes, "", status="same"),
    "ctc_one_by_one": Planted(ctc_one_by_one, "", status="same"),
    "advantages_by_a_matrix": Planted(advantages_by_a_matrix, "", status="same"),
    "loader_with_a_second_generator": Planted(loader_with_a_second_generator, "", status="same"),
    "scaler_begins_elsewhere": Planted(scaler_begins_elsewhere, "", status="same"),
    "head_tied_by_name_or_by_hand": Planted(head_tied_by_name_or_by_hand, "", status="same"),
    "frozen_norm_folded_into_its_convolution": Planted(
        frozen_norm_folded_into_its_convolution, "", status="same"
    ),
    "noise_levels_by_logarithms": Planted(noise_levels_by_logarithms, "", status="same"),
    "parts_averaged_as_if_alike": Planted(parts_averaged_as_if_alike, "", "# here: alike"),
    "places_of_rows_padded_at_their_left": Planted(
        places_of_rows_padded_at_their_left, "", "# here: left_padded"
    ),
    "rotary_pairs_of_another_layout": Planted(rotary_pairs_of_another_layout, "", "# here: pairs"),
    "clipped_while_still_scaled": Planted(clipped_while_still_scaled, "", "# here: still_scaled"),
    "dropout_stays_off_after_validation": Planted(
        dropout_stays_off_after_validation, "", "# here: stays_off"
    ),
    "schedule_that_counts_parts": Planted(schedule_that_counts_parts, "", "# here: counts_parts"),
    "adam_corrects_one_moment_only": Planted(
        adam_corrects_one_moment_only, "", "# here: one_moment"
    ),
    "lion_moves_its_memory_first": Planted(lion_moves_its_memory_first, "", "# here: memory_first"),
    "lamb_ratio_without_its_decay": Planted(
        lamb_ratio_without_its_decay, "", "# here: without_decay"
    ),
    "smoothing_over_padding": Planted(smoothing_over_padding, "", "# here: over_padding"),
    "same_order_in_every_epoch": Planted(same_order_in_every_epoch, "", "# here: same_order"),
    "running_variance_that_is_biased": Planted(
        running_variance_that_is_biased, "", "# here: biased"
    ),
    "kept_keys_one_place_early": Planted(kept_keys_one_place_early, "", "# here: one_early"),
    "gates_that_do_not_sum_to_one": Planted(gates_that_do_not_sum_to_one, "", "# here: not_to_one"),
    "adapter_scaled_by_the_root": Planted(adapter_scaled_by_the_root, "", "# here: by_root"),
    "last_bucket_of_one_worker": Planted(last_bucket_of_one_worker, "", "# here: of_one_worker"),
    "advantages_run_through_ends": Planted(advantages_run_through_ends, "", "# here: not_done"),
    "ctc_of_frames_before_the_stride": Planted(
        ctc_of_frames_before_the_stride, "", "# here: before_stride"
    ),
    "rounding_lets_clamped_weights_learn": Planted(
        rounding_lets_clamped_weights_learn, "", "# here: clamped"
    ),
    "counts_of_classes_in_bfloat16": Planted(counts_of_classes_in_bfloat16, "", "# here: stuck"),
    "best_weights_are_an_alias": Planted(best_weights_are_an_alias, "", "# here: an_alias"),
    "dropout_redrawn_in_recomputation": Planted(
        dropout_redrawn_in_recomputation, "", "# here: redrawn"
    ),
}
