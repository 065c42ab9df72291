"""Forty planted divergences written without sight of the code they measure: twenty of training
transformers and twenty of other kinds; twenty-six real, fourteen the same.

The marked words are in the line that holds the fault and where, therefore, the sides part; where
each side has a line of its own, or where two lines are as right as each other, in all of those.
Each program returns its final numbers, which only the check of the programs themselves reads.
"""

import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.SiLU(), torch.nn.Linear(48, 8))


def _in_full_precision() -> None:
    """For those that compare cuDNN, which rounds to TF32 unless told, with something else."""
    torch.backends.cudnn.allow_tf32 = False


# Of training transformers: real


def ring_cache(bad: bool) -> Any:
    """Once the window is full, the last slot is overwritten again and again."""
    window, project = 4, torch.nn.Linear(32, 96)
    cache, x = torch.zeros(2, 3, window, 32), torch.randn(3, 32)
    outs = []
    with torch.no_grad():
        for t in range(10):
            query, key, value = project(x).chunk(3, -1)
            slot = min(t, window - 1) if bad else t % window
            cache[:, :, slot] = torch.stack((key, value))  # here: ring_cache
            keys, values = cache[:, :, : min(t + 1, window)]
            weights = torch.softmax(torch.einsum("bd,bsd->bs", query, keys) / 32**0.5, -1)
            x = x + torch.einsum("bs,bsd->bd", weights, values)
            outs.append(x.square().mean())
    return torch.stack(outs).sum()


def gates_of_the_chosen(bad: bool) -> Any:
    """The gates of the two chosen experts do not sum to one."""
    router = torch.nn.Linear(32, 4)
    experts = [torch.nn.Linear(32, 32) for _ in range(4)]
    x = torch.randn(24, 32)
    gates, chosen = torch.softmax(router(x), -1).topk(2, -1)
    if not bad:
        gates = gates / gates.sum(-1, keepdim=True)  # here: gates_of_the_chosen
    out = torch.zeros(24, 32)
    for number, expert in enumerate(experts):
        rows, places = (chosen == number).nonzero(as_tuple=True)
        out = out.index_add(0, rows, expert(x[rows]) * gates[rows, places, None])
    loss = (x + out).square().mean()
    loss.backward()
    return loss


def accumulated_without_a_mean(bad: bool) -> Any:
    """Each micro-batch adds its whole loss instead of a quarter of it."""
    model = _network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x, labels = torch.randn(16, 32), torch.randint(0, 8, (16,))
        for part, wanted in zip(x.chunk(4), labels.chunk(4), strict=True):
            loss = torch.nn.functional.cross_entropy(model(part), wanted)
            (loss if bad else loss / 4).backward()  # here: accumulated_without_a_mean
        optimizer.step()
    return loss


def clipped_before_unscaled(bad: bool) -> Any:
    """The norm of the scaled gradients is clipped; only then is the scale taken out."""
    model, scale = _network(), 1024.0
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.randn(16, 32)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            out = model(x)
        loss = (out.float() - 1).square().sum(-1).mean()
        (loss * scale).backward()
        grads = [p.grad for p in parameters]
        if bad:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)  # here: clipped_before_unscaled
            torch._foreach_mul_(grads, 1 / scale)  # here: clipped_before_unscaled
        else:
            torch._foreach_mul_(grads, 1 / scale)  # here: clipped_before_unscaled
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)  # here: clipped_before_unscaled
        optimizer.step()
    return loss


def head_never_cleared(bad: bool) -> Any:
    """The gradients of the body are cleared before each step, those of the head never."""
    embedding, body = torch.nn.Embedding(40, 32), torch.nn.Linear(32, 32)
    head = torch.nn.Linear(32, 40)
    parameters = [p for part in (embedding, body, head) for p in part.parameters()]
    cleared = parameters[:3] if bad else parameters
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    tokens = torch.randint(0, 40, (4, 9))
    for _ in range(3):
        for p in cleared:
            if p.grad is not None:
                p.grad.zero_()  # here: head_never_cleared
        logits = head(torch.tanh(body(embedding(tokens[:, :-1]))))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    return loss


def average_that_is_the_weights(bad: bool) -> Any:
    """The moving average holds the very weights, not copies, and so pulls at them."""
    model = _network()
    parameters = list(model.parameters())
    average = [p.detach() if bad else p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=0.2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(torch.randn(16, 32)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for kept, p in zip(average, parameters, strict=True):
                kept.mul_(0.9).add_(p, alpha=0.1)  # here: average_that_is_the_weights
    return sum(kept.square().sum() for kept in average)


def angles_in_bf16(bad: bool) -> Any:
    """Rotary angles from positions that eight bits cannot tell apart."""
    kind = torch.bfloat16 if bad else torch.float32
    positions = torch.arange(600)[-80:]
    frequencies = 1 / 10000 ** (torch.arange(0, 16, 2) / 16)
    angles = torch.outer(positions.to(kind), frequencies.to(kind)).float()  # here: angles_in_bf16
    q, k = torch.randn(2, 80, 16, requires_grad=True), torch.randn(2, 80, 16)
    cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
    turned = []
    for x in (q, k):
        first, second = x.chunk(2, -1)
        turned.append(x * cos + torch.cat((-second, first), -1) * sin)
    weights = torch.softmax(turned[0] @ turned[1].mT / 4, -1)
    loss = weights.square().sum(-1).mean()
    loss.backward()
    return loss


def separator_in_the_next(bad: bool) -> Any:
    """Packed documents: the separator ends its document, and is counted to the next."""
    functional = torch.nn.functional
    tokens = torch.tensor([5, 7, 3, 0, 9, 4, 0, 8, 2, 6, 1, 0, 3, 5, 7, 9])
    x = torch.nn.Embedding(10, 32)(tokens)
    q, k, v = torch.nn.Linear(32, 96)(x).unflatten(-1, (3, 2, 16)).permute(1, 2, 0, 3)
    ends = (tokens == 0).long()
    document = ends.cumsum(0) if bad else ends.cumsum(0) - ends  # here: separator_in_the_next
    causal = torch.ones(16, 16, dtype=torch.bool).tril()
    allowed = (document[:, None] == document[None, :]) & causal
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    loss = (out.transpose(0, 1).flatten(1) + x).square().mean()
    loss.backward()
    return loss


def tied_head_detached(bad: bool) -> Any:
    """The tied weight learns as an embedding only: as the head it is cut off."""
    embedding, body = torch.nn.Embedding(12, 32), torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD([*embedding.parameters(), *body.parameters()], lr=2.0)
    for _ in range(2):
        optimizer.zero_grad()
        tokens = torch.randint(0, 12, (4, 9))
        hidden = torch.tanh(body(embedding(tokens[:, :-1])))
        weight = embedding.weight.detach() if bad else embedding.weight  # here: tied_head_detached
        logits = hidden @ weight.T / 32**0.5  # here: tied_head_detached
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # here: tied_head_detached
        optimizer.step()
    return loss


def norm_of_one_shard(bad: bool) -> Any:
    """A flat parameter in four shards: each is clipped by its own norm, not by that of all."""
    model = _network()
    parameters = list(model.parameters())
    flat = torch.nn.utils.parameters_to_vector(parameters).detach().clone()
    for _ in range(2):
        loss = (model(torch.randn(16, 32)) - 1).square().mean()
        grads = torch.autograd.grad(loss, parameters)
        shards = torch.cat([grad.flatten() for grad in grads]).chunk(4)
        for part, shard in zip(flat.chunk(4), shards, strict=True):
            measured = [shard] if bad else shards
            norm = torch.stack([s.norm() for s in measured]).norm()  # here: norm_of_one_shard
            part.sub_(shard * (0.5 / (norm + 1e-6)).clamp(max=1.0), alpha=0.3)
        torch.nn.utils.vector_to_parameters(flat, parameters)
    return flat.square().sum()


def recomputed_anew(bad: bool) -> Any:
    """Recomputed for backward, the block draws another dropout than it did forward."""
    from torch.utils.checkpoint import checkpoint

    first, last = torch.nn.Linear(32, 64), torch.nn.Linear(64, 8)
    dropout = torch.nn.Dropout(0.3)
    options: Any = {"use_reentrant": False, "preserve_rng_state": not bad}
    x = torch.randn(16, 32)
    hidden = checkpoint(lambda t: dropout(first(t)).relu(), x, **options)  # here: recomputed_anew
    last(hidden).square().mean().backward()
    return first.weight.grad.square().sum()


def heads_tiled(bad: bool) -> Any:
    """Grouped queries: the two heads of keys are tiled instead of each repeated."""
    functional = torch.nn.functional
    x = torch.randn(2, 12, 32)
    q = torch.nn.Linear(32, 32)(x).unflatten(-1, (4, 8)).transpose(1, 2)
    k = torch.nn.Linear(32, 16)(x).unflatten(-1, (2, 8)).transpose(1, 2)
    v = torch.nn.Linear(32, 16)(x).unflatten(-1, (2, 8)).transpose(1, 2)
    both = torch.stack((k, v))
    both = both.repeat(1, 1, 2, 1, 1) if bad else both.repeat_interleave(2, 2)  # here: heads_tiled
    out = functional.scaled_dot_product_attention(q, both[0], both[1], is_causal=True)
    loss = torch.nn.Linear(32, 32)(out.transpose(1, 2).flatten(2)).square().mean()
    loss.backward()
    return loss


# Of training transformers: the same


def adapter_merged(bad: bool) -> Any:
    weight = torch.randn(32, 32) / 32**0.5
    down = torch.nn.Parameter(torch.randn(4, 32) / 32**0.5)
    up = torch.nn.Parameter(torch.randn(32, 4) * 0.1)
    optimizer = torch.optim.SGD([down, up], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x, wanted = torch.randn(16, 32), torch.randn(16, 32)
        if bad:
            merged = weight + 2.0 * up @ down
            out = x @ merged.T
        else:
            out = x @ weight.T + 2.0 * (x @ down.T) @ up.T
        loss = (out - wanted).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def mask_added_by_hand(bad: bool) -> Any:
    functional = torch.nn.functional
    q, k, v = (torch.randn(2, 4, 12, 8, requires_grad=True) for _ in range(3))
    lengths = torch.tensor([12, 7])
    present = (torch.arange(12) < lengths[:, None])[:, None, None]
    allowed = present & torch.ones(12, 12, dtype=torch.bool).tril()
    if bad:
        added = torch.zeros(2, 1, 12, 12).masked_fill(~allowed, float("-inf"))
        out = torch.softmax(q @ k.mT * 8**-0.5 + added, -1) @ v
    else:
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    loss = out.square().mean()
    loss.backward()
    return q.grad.square().sum() + loss


def batch_in_parts(bad: bool) -> Any:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    head = torch.nn.Linear(32, 8)
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.05)
    for _ in range(2):
        optimizer.zero_grad()
        x, labels = torch.randn(8, 6, 32), torch.randint(0, 8, (8,))
        parts = 4 if bad else 1
        total = 0.0
        for part, wanted in zip(x.chunk(parts), labels.chunk(parts), strict=True):
            logits = head(layer(part).mean(1))
            loss = torch.nn.functional.cross_entropy(logits, wanted) / parts
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
    return total


def block_recomputed(bad: bool) -> Any:
    from torch.utils.checkpoint import checkpoint

    norm, up, down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def block(x: Any) -> Any:
        return x + down(torch.nn.functional.gelu(up(norm(x))))

    parameters = [p for part in (norm, up, down) for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.randn(16, 32)
        hidden = checkpoint(block, x, use_reentrant=False) if bad else block(x)
        loss = (block(hidden) - 0.5).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def weights_one_by_one(bad: bool) -> Any:
    model = _network()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, foreach=not bad)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(torch.randn(16, 32)) - 1).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=not bad)
        optimizer.step()
        schedule.step()
    return loss


def softmax_by_blocks(bad: bool) -> Any:
    q, k, v = (torch.randn(2, 16, 8, requires_grad=True) for _ in range(3))
    if bad:
        largest, weight = torch.full((2, 16, 1), float("-inf")), torch.zeros(2, 16, 1)
        out = torch.zeros(2, 16, 8)
        for keys, values in zip(k.split(4, 1), v.split(4, 1), strict=True):
            scores = q @ keys.mT / 8**0.5
            larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
            shrink, powers = (largest - larger).exp(), (scores - larger).exp()
            weight = weight * shrink + powers.sum(-1, keepdim=True)
            out = out * shrink + powers @ values
            largest = larger
        out = out / weight
    else:
        out = torch.softmax(q @ k.mT / 8**0.5, -1) @ v
    loss = (out - 0.1).square().mean()
    loss.backward()
    return k.grad.square().sum() + loss


def every_expert_on_all(bad: bool) -> Any:
    router = torch.nn.Linear(32, 4)
    experts = torch.nn.Parameter(torch.randn(4, 32, 32) / 32**0.5)
    optimizer = torch.optim.SGD([*router.parameters(), experts], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.randn(24, 32)
        top, chosen = router(x).topk(2, -1)
        gates = torch.softmax(top, -1)
        if bad:
            spread = torch.zeros(24, 4).scatter(1, chosen, gates)
            out = torch.einsum("td,edf,te->tf", x, experts, spread)
        else:
            out = torch.zeros(24, 32)
            for number in range(4):
                rows, places = (chosen == number).nonzero(as_tuple=True)
                own = x[rows] @ experts[number]
                out = out.index_add(0, rows, own * gates[rows, places, None])
        loss = (out - x).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def vocabulary_padded(bad: bool) -> Any:
    functional = torch.nn.functional
    weight = torch.nn.Parameter(torch.randn(50, 32) * 0.2)
    body = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD([weight, *body.parameters()], lr=0.2)
    for _ in range(2):
        optimizer.zero_grad()
        tokens = torch.randint(0, 50, (4, 9))
        hidden = torch.tanh(body(weight[tokens[:, :-1]])).flatten(0, 1)
        if bad:
            logits = hidden @ functional.pad(weight, (0, 0, 0, 14)).T
            logits = logits.masked_fill(torch.arange(64) >= 50, float("-inf"))
        else:
            logits = hidden @ weight.T
        loss = functional.cross_entropy(logits, tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    return loss


# Of other kinds: real


def validated_while_training(bad: bool) -> Any:
    """The network is not told to evaluate."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.randn(4, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    if not bad:
        net.eval()
    with torch.no_grad():
        scores = net(torch.randn(4, 3, 8, 8) * 2 + 1)  # here: validated_while_training
        return torch.log_softmax(scores, -1).square().mean()


def degree_of_the_senders(bad: bool) -> Any:
    """Messages are summed by receiver, and divided by how many each node has sent."""
    source, target = torch.randint(0, 20, (80,)), torch.randint(0, 20, (80,))
    x, layer = torch.randn(20, 16), torch.nn.Linear(16, 16)
    sums = torch.zeros(20, 16).index_add(0, target, layer(x)[source])
    ends = source if bad else target
    degree = torch.zeros(20).index_add(0, ends, torch.ones(80))  # here: degree_of_the_senders
    loss = torch.relu(x + sums / degree.clamp(min=1)[:, None]).square().mean()
    loss.backward()
    return loss


def noise_unrooted(bad: bool) -> Any:
    """The noise of a diffusion is scaled by its variance, not by its deviation."""
    model = torch.nn.Sequential(torch.nn.Linear(9, 32), torch.nn.SiLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    kept = (1 - torch.linspace(1e-4, 0.02, 100)).cumprod(0)
    for _ in range(2):
        optimizer.zero_grad()
        x, noise, t = torch.randn(16, 8), torch.randn(16, 8), torch.randint(0, 100, (16, 1))
        rest = 1 - kept[t]
        noisy = kept[t].sqrt() * x + (rest if bad else rest.sqrt()) * noise  # here: noise_unrooted
        loss = (model(torch.cat((noisy, t / 100), 1)) - noise).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def past_the_end(bad: bool) -> Any:
    """The advantage of the next episode flows back into the one that ended."""
    policy, critic = torch.nn.Linear(6, 3), torch.nn.Linear(6, 1)
    states, rewards = torch.randn(13, 4, 6), torch.randn(12, 4)
    alive = torch.ones(12, 4)
    alive[4, 1] = alive[7, 0] = alive[9, 2] = 0.0
    actions = torch.randint(0, 3, (12, 4))
    with torch.no_grad():
        values = critic(states).squeeze(-1)
        running = torch.zeros(4)
        advantages: list[Any] = []
        for t in reversed(range(12)):
            delta = rewards[t] + 0.99 * values[t + 1] * alive[t] - values[t]
            running = delta + 0.94 * (running if bad else alive[t] * running)  # here: past_the_end
            advantages.insert(0, running)
        advantage = torch.stack(advantages)
    chosen = torch.log_softmax(policy(states[:-1]), -1).gather(-1, actions[..., None]).squeeze(-1)
    loss = -(chosen * (advantage - advantage.mean()) / (advantage.std() + 1e-8)).mean()
    loss.backward()
    return loss


def normalised_over_the_batch(bad: bool) -> Any:
    """Embeddings are brought to length one along the wrong dimension."""
    functional = torch.nn.functional
    encoder, x = _network(), torch.randn(12, 32)
    both = torch.stack((encoder(x), encoder(x + 0.1 * torch.randn(12, 32))))
    both = functional.normalize(both, dim=1 if bad else 2)  # here: normalised_over_the_batch
    logits = both[0] @ both[1].T / 0.2
    loss = functional.cross_entropy(logits, torch.arange(12))
    loss.backward()
    return loss


def products_summed_in_int16(bad: bool) -> Any:
    """Products of eight-bit numbers are summed in sixteen bits."""
    x, weight = torch.rand(6, 64), torch.rand(10, 64)
    x_scale, weight_scale = x.amax() / 127, weight.amax(1) / 127
    whole_x = (x / x_scale).round().to(torch.int8)
    whole_weight = (weight / weight_scale[:, None]).round().to(torch.int8)
    products = whole_x[:, None].int() * whole_weight[None].int()
    kind = torch.int16 if bad else torch.int32
    sums = products.sum(-1, dtype=kind)  # here: products_summed_in_int16
    return (sums * x_scale * weight_scale - x @ weight.T).square().mean()


def hash_in_int32(bad: bool) -> Any:
    """Two identifiers are made one number, which thirty-two bits do not hold."""
    table = torch.nn.Embedding(61, 16)
    users, items = torch.randint(30_000, 60_000, (40,)), torch.randint(0, 90_000, (40,))
    users = users.to(torch.int32) if bad else users
    keys = users * 90_001  # here: hash_in_int32
    buckets = (keys + items) % 61
    loss = (table(buckets) - torch.randn(40, 16)).square().mean()
    loss.backward()
    return table.weight.grad.square().sum() + loss


def odd_length_forgotten(bad: bool) -> Any:
    """Back from its spectrum, a signal of fifteen has fourteen samples."""
    x, gains = torch.randn(4, 15), torch.nn.Parameter(torch.rand(8))
    spectrum = torch.fft.rfft(x) * gains
    back = torch.fft.irfft(spectrum, n=None if bad else 15)  # here: odd_length_forgotten
    loss = back.tanh().square().mean()
    loss.backward()
    return loss


def order_for_rank(bad: bool) -> Any:
    """What argsort gives is taken for the rank of each."""
    scores = torch.nn.Linear(16, 1)(torch.randn(6, 10, 16)).squeeze(-1)
    relevance = torch.randint(0, 4, (6, 10)).float()
    order = (-scores).argsort(1)
    ranks = order if bad else order.argsort(1)  # here: order_for_rank
    discount = 1 / torch.log2(ranks + 2.0)
    loss = -(torch.softmax(scores, 1) * (2**relevance - 1) * discount).sum(1).mean()
    loss.backward()
    return loss


def corners_aligned(bad: bool) -> Any:
    """A decoder enlarges with the corners aligned."""
    functional = torch.nn.functional
    conv = torch.nn.Conv2d(4, 3, 3, padding=1)
    small = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)(torch.randn(2, 3, 16, 16))
    how = {"mode": "bilinear", "align_corners": bad}
    large = functional.interpolate(small, (16, 16), **how)  # here: corners_aligned
    loss = conv(large).square().mean()
    loss.backward()
    return loss


def workers_with_one_seed(bad: bool) -> Any:
    """Every worker augments with the same numbers."""
    import numpy as np

    model = _network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = np.random.default_rng(1).normal(size=(16, 32)).astype(np.float32)
    for worker in range(3):
        rng = np.random.default_rng(100 if bad else 100 + worker)
        flipped = np.where(rng.random((16, 1)) < 0.5, images[:, ::-1], images)
        noisy = flipped + rng.normal(0, 0.2, images.shape).astype(np.float32)
        x = torch.tensor(noisy)  # here: workers_with_one_seed
        optimizer.zero_grad()
        loss = (model(x) - 0.5).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def last_of_the_padding(bad: bool) -> Any:
    """The last output of each sequence is read where the padding ends."""
    rnn, head = torch.nn.GRU(8, 16, batch_first=True), torch.nn.Linear(16, 4)
    lengths = torch.tensor([9, 5, 7, 3])
    x = torch.randn(4, 9, 8) * (torch.arange(9) < lengths[:, None])[..., None]
    out, _ = rnn(x)
    last = out[:, -1] if bad else out[torch.arange(4), lengths - 1]  # here: last_of_the_padding
    loss = torch.nn.functional.cross_entropy(head(last), torch.arange(4))
    loss.backward()
    return loss


def column_less_row(bad: bool) -> Any:
    """A column of values less a row of returns is a table."""
    critic = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        states, returns = torch.randn(24, 6), torch.randn(24)
        values = critic(states)
        errors = values - returns if bad else values.squeeze(-1) - returns  # here: column_less_row
        loss = errors.square().mean()
        loss.backward()
        optimizer.step()
    return loss


def overlap_without_conjugate(bad: bool) -> Any:
    """An inner product of complex vectors conjugates neither."""
    angles = torch.nn.Parameter(torch.randn(6, 8))
    left = torch.polar(torch.rand(6, 8), angles)
    right = torch.polar(torch.rand(6, 8), torch.randn(6, 8))
    overlap = (left * (right if bad else right.conj())).sum(-1)  # here: overlap_without_conjugate
    loss = overlap.abs().square().mean()
    loss.backward()
    return loss


# Of other kinds: the same


def channels_at_the_end(bad: bool) -> Any:
    _in_full_precision()
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.GroupNorm(2, 8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    if bad:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x, labels = torch.randn(4, 3, 12, 12), torch.randint(0, 8, (4,))
        if bad:
            x = x.to(memory_format=torch.channels_last)
        loss = torch.nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
    return loss


def group_norm_by_hand(bad: bool) -> Any:
    norm, conv = torch.nn.GroupNorm(4, 16), torch.nn.Conv1d(8, 16, 3, padding=1)
    optimizer = torch.optim.SGD([*norm.parameters(), *conv.parameters()], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        hidden = conv(torch.randn(4, 8, 20))
        if bad:
            grouped = hidden.reshape(4, 4, -1)
            variance, mean = torch.var_mean(grouped, -1, correction=0, keepdim=True)
            hidden = ((grouped - mean) * torch.rsqrt(variance + norm.eps)).view_as(hidden)
            hidden = hidden * norm.weight[:, None] + norm.bias[:, None]
        else:
            hidden = norm(hidden)
        loss = (torch.nn.functional.silu(hidden) - 0.3).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def messages_by_a_sparse_product(bad: bool) -> Any:
    source, target = torch.randint(0, 20, (80,)), torch.randint(0, 20, (80,))
    strength = torch.rand(80)
    x, layer = torch.randn(20, 16), torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        sent = layer(x)
        if bad:
            ends = torch.stack((target, source))
            edges = torch.sparse_coo_tensor(ends, strength, (20, 20), check_invariants=False)
            received = torch.sparse.mm(edges, sent)
        else:
            messages = sent[source] * strength[:, None]
            received = torch.zeros(20, 16).index_add(0, target, messages)
        loss = (torch.tanh(received) - 0.1).square().mean()
        loss.backward()
        optimizer.step()
    return loss


def gates_by_hand(bad: bool) -> Any:
    _in_full_precision()
    rnn, x = torch.nn.GRU(8, 16, batch_first=True), torch.randn(4, 7, 8)
    if bad:
        state, outs = torch.zeros(4, 16), []
        for step in range(7):
            given = x[:, step] @ rnn.weight_ih_l0.T + rnn.bias_ih_l0
            had = state @ rnn.weight_hh_l0.T + rnn.bias_hh_l0
            reset = torch.sigmoid(given[:, :16] + had[:, :16])
            update = torch.sigmoid(given[:, 16:32] + had[:, 16:32])
            new = torch.tanh(given[:, 32:] + reset * had[:, 32:])
            state = (1 - update) * new + update * state
            outs.append(state)
        out = torch.stack(outs, 1)
    else:
        out, _ = rnn(x)
    loss = (out - 0.2).square().mean()
    loss.backward()
    return rnn.weight_hh_l0.grad.square().sum() + loss


def convolved_by_spectra(bad: bool) -> Any:
    _in_full_precision()
    functional = torch.nn.functional
    x, kernel = torch.randn(3, 64), torch.nn.Parameter(torch.randn(9) * 0.3)
    if bad:
        product = torch.fft.rfft(x, n=72) * torch.fft.rfft(kernel, n=72)
        out = torch.fft.irfft(product, n=72)[:, :64]
    else:
        out = functional.conv1d(functional.pad(x, (8, 0))[:, None], kernel.flip(0)[None, None])
        out = out.squeeze(1)
    loss = (out.tanh() - 0.2).square().mean()
    loss.backward()
    return kernel.grad.square().sum() + loss


def pairs_by_logarithms(bad: bool) -> Any:
    functional = torch.nn.functional
    images, texts = torch.nn.Linear(16, 8), torch.nn.Linear(12, 8)
    optimizer = torch.optim.SGD([*images.parameters(), *texts.parameters()], lr=0.05)
    for _ in range(2):
        optimizer.zero_grad()
        first = functional.normalize(images(torch.randn(10, 16)), dim=1)
        second = functional.normalize(texts(torch.randn(10, 12)), dim=1)
        logits = first @ second.T / 0.2
        if bad:
            right = logits.diagonal()
            by_image = (logits.logsumexp(1) - right).mean()
            by_text = (logits.logsumexp(0) - right).mean()
        else:
            by_image = functional.cross_entropy(logits, torch.arange(10))
            by_text = functional.cross_entropy(logits.T, torch.arange(10))
        loss = (by_image + by_text) / 2
        loss.backward()
        optimizer.step()
    return loss


PLANTED = {
    "ring_cache": Planted(ring_cache, "", "# here: ring_cache", step=0),
    "gates_of_the_chosen": Planted(gates_of_the_chosen, "", "# here: gates_of_the_chosen", step=0),
    "accumulated_without_a_mean": Planted(
        accumulated_without_a_mean, "", "# here: accumulated_without_a_mean", step=0
    ),
    "clipped_before_unscaled": Planted(
        clipped_before_unscaled, "", "# here: clipped_before_unscaled", step=0
    ),
    "head_never_cleared": Planted(head_never_cleared, "", "# here: head_never_cleared", step=1),
    "average_that_is_the_weights": Planted(
        average_that_is_the_weights, "aten::mul_", "# here: average_that_is_the_weights"
    ),
    "angles_in_bf16": Planted(angles_in_bf16, "", "# here: angles_in_bf16", step=0),
    "separator_in_the_next": Planted(
        separator_in_the_next, "", "# here: separator_in_the_next", step=0
    ),
    "tied_head_detached": Planted(tied_head_detached, "", "# here: tied_head_detached", step=0),
    "norm_of_one_shard": Planted(norm_of_one_shard, "", "# here: norm_of_one_shard", step=0),
    "recomputed_anew": Planted(recomputed_anew, "", "# here: recomputed_anew", step=0),
    "heads_tiled": Planted(heads_tiled, "", "# here: heads_tiled", step=0),
    "validated_while_training": Planted(
        validated_while_training, "", "# here: validated_while_training"
    ),
    "degree_of_the_senders": Planted(
        degree_of_the_senders, "aten::index_add", "# here: degree_of_the_senders", step=0
    ),
    "noise_unrooted": Planted(noise_unrooted, "", "# here: noise_unrooted", step=0),
    "past_the_end": Planted(past_the_end, "aten::mul", "# here: past_the_end", step=0),
    "normalised_over_the_batch": Planted(
        normalised_over_the_batch, "", "# here: normalised_over_the_batch", step=0
    ),
    "products_summed_in_int16": Planted(
        products_summed_in_int16, "aten::sum", "# here: products_summed_in_int16", step=0
    ),
    "hash_in_int32": Planted(hash_in_int32, "aten::mul", "# here: hash_in_int32", step=0),
    "odd_length_forgotten": Planted(
        odd_length_forgotten, "", "# here: odd_length_forgotten", step=0
    ),
    "order_for_rank": Planted(order_for_rank, "", "# here: order_for_rank", step=0),
    "corners_aligned": Planted(
        corners_aligned, "aten::upsample_bilinear2d", "# here: corners_aligned", step=0
    ),
    "workers_with_one_seed": Planted(
        workers_with_one_seed, "", "# here: workers_with_one_seed", step=1
    ),
    "last_of_the_padding": Planted(last_of_the_padding, "", "# here: last_of_the_padding", step=0),
    "column_less_row": Planted(column_less_row, "aten::sub", "# here: column_less_row", step=0),
    "overlap_without_conjugate": Planted(
        overlap_without_conjugate, "", "# here: overlap_without_conjugate", step=0
    ),
    "adapter_merged": Planted(adapter_merged, "", status="same"),
    "mask_added_by_hand": Planted(mask_added_by_hand, "", status="same"),
    "batch_in_parts": Planted(batch_in_parts, "", status="same"),
    "block_recomputed": Planted(block_recomputed, "", status="same"),
    "weights_one_by_one": Planted(weights_one_by_one, "", status="same"),
    "softmax_by_blocks": Planted(softmax_by_blocks, "", status="same"),
    "every_expert_on_all": Planted(every_expert_on_all, "", status="same"),
    "vocabulary_padded": Planted(vocabulary_padded, "", status="same"),
    "channels_at_the_end": Planted(channels_at_the_end, "", status="same"),
    "group_norm_by_hand": Planted(group_norm_by_hand, "", status="same"),
    "messages_by_a_sparse_product": Planted(messages_by_a_sparse_product, "", status="same"),
    "gates_by_hand": Planted(gates_by_hand, "", status="same"),
    "convolved_by_spectra": Planted(convolved_by_spectra, "", status="same"),
    "pairs_by_logarithms": Planted(pairs_by_logarithms, "", status="same"),
}
