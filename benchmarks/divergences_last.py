"""Forty-four pairs written blind, truth first: half are faults, half are rewrites that change
nothing but rounding.

A guilty line ends with `# PLANT` and its pair's word; where two or three lines would each be an
honest answer, each of them has it. `_end` keeps what a pair ends with, for the check
that its truth is real.
"""

import io
import math
import sys
from collections.abc import Iterable
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs

ENDED: dict[str, Any] = {}


def _end(loss: Any, weights: Iterable[Any]) -> None:
    ENDED.update(loss=loss, weights=list(weights))


# Faults


def lora_delta_in_bf16(bad: bool) -> None:
    """LoRA on a frozen trunk: one of the adapters multiplies in bfloat16."""
    nn = torch.nn

    class Lora(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, base: Any, rank: int, low: bool) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.2)
            self.up = nn.Parameter(torch.randn(base.out_features, rank) * 0.2)
            self.dtype = torch.bfloat16 if low else torch.float32

        def forward(self, x: Any) -> Any:
            low = x.to(self.dtype) @ self.down.to(self.dtype).T  # PLANT lora
            delta = (low @ self.up.to(self.dtype).T).to(x.dtype)
            return self.base(x) + delta * 2.0

    first, second = Lora(nn.Linear(24, 32), 4, False), Lora(nn.Linear(32, 32), 4, bad)
    head = Lora(nn.Linear(32, 6), 4, False)
    model = nn.Sequential(first, nn.GELU(), nn.LayerNorm(32), second, nn.GELU(), head)
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    x, y = torch.randn(16, 24), torch.randint(0, 6, (16,))
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, trained)


def neck_under_autocast(bad: bool) -> None:
    """A detector whose neck alone runs under autocast."""
    nn, functional = torch.nn, torch.nn.functional

    class Detector(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.norm = nn.GroupNorm(2, 8)
            self.neck = nn.Conv2d(8, 12, 1)
            self.classes = nn.Conv2d(12, 5, 1)
            self.boxes = nn.Conv2d(12, 4, 1)

        def forward(self, image: Any) -> Any:
            fine = functional.silu(self.norm(self.stem(image)))
            with torch.autocast(image.device.type, dtype=torch.bfloat16, enabled=bad):
                fused = self.neck(fine)  # PLANT neck
            fused = functional.silu(fused.float())
            return self.classes(fused), self.boxes(fused).exp()

    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-2)
    images, where = torch.randn(4, 3, 12, 12), torch.rand(4, 4, 6, 6)
    labels = torch.randint(0, 5, (4, 6, 6))
    for _ in range(4):
        opt.zero_grad()
        classes, boxes = model(images)
        loss = functional.cross_entropy(classes, labels) + functional.l1_loss(boxes, where)
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def projection_kept_in_fp16(bad: bool) -> None:
    """A speech encoder, one of whose layers was left with the weights of inference, in half."""
    nn, functional = torch.nn, torch.nn.functional

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(20, 24, 3, padding=1)
            self.project = nn.Linear(24, 24)
            self.rnn = nn.GRU(24, 16, batch_first=True)
            self.out = nn.Linear(16, 8)

        def forward(self, mel: Any) -> Any:
            frames = functional.gelu(self.conv(mel)).transpose(1, 2)
            given = frames.to(self.project.weight.dtype)  # PLANT in_fp16
            frames = self.project(given).float()  # PLANT in_fp16
            return self.out(self.rnn(frames)[0])

    model = Encoder()
    if bad:
        model.project.half()  # PLANT in_fp16
    opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    mel, said = torch.randn(3, 20, 15) * 4, torch.randint(1, 8, (3, 5))
    frames, letters = torch.full((3,), 15), torch.full((3,), 5)
    for _ in range(4):
        spoken = model(mel).log_softmax(-1).transpose(0, 1)
        loss = functional.ctc_loss(spoken, said, frames, letters)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def moments_in_bf16(bad: bool) -> None:
    """An optimizer of one's own that keeps its second moment in bfloat16 to save memory."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
    head = nn.Linear(24, 1)
    weights = [*model.parameters(), *head.parameters()]
    kept = torch.bfloat16 if bad else torch.float32
    mean = [torch.zeros_like(w) for w in weights]
    square = [torch.zeros_like(w, dtype=kept) for w in weights]  # PLANT moments
    x = torch.randn(32, 12)
    y = x[:, :3].sum(1).sin()
    for step in range(1, 7):
        loss = (head(model(x)).squeeze(1) - y).square().mean()
        for w in weights:
            w.grad = None
        loss.backward()
        with torch.no_grad():
            for w, m, v in zip(weights, mean, square, strict=True):
                m.mul_(0.9).add_(w.grad, alpha=0.1)
                v.mul_(0.98).add_(w.grad.square(), alpha=0.02)  # PLANT moments
                down = (v.float() / (1 - 0.98**step)).sqrt().add_(1e-8)
                w.sub_(0.01 * (m / (1 - 0.9**step)) / down)
    _end(loss, weights)


def loss_of_bf16_logits(bad: bool) -> None:
    """A language model trained in float32, whose logits are rounded before the loss."""
    nn, functional = torch.nn, torch.nn.functional
    embed, mix = nn.Embedding(40, 16), nn.GRU(16, 32, batch_first=True)
    norm, out = nn.LayerNorm(32), nn.Linear(32, 40, bias=False)
    model = nn.ModuleList([embed, mix, norm, out])
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    ids = torch.randint(0, 40, (4, 13))
    for _ in range(4):
        hidden = norm(mix(embed(ids[:, :-1]))[0])
        logits, aim = out(hidden) * 3.0, ids[:, 1:]
        if bad:
            logits = logits.to(torch.bfloat16)  # PLANT rounded_logits
        loss = functional.cross_entropy(logits.transpose(1, 2), aim)  # PLANT rounded_logits
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    _end(loss, model.parameters())


def degree_over_wrong_axis(bad: bool) -> None:
    """A graph network on a directed graph, normalised by the edges that leave, not those that
    come in; the bad side has also written its product as an einsum."""
    nn, functional = torch.nn, torch.nn.functional
    nodes = 14
    source, target = torch.randint(0, nodes, (40,)), torch.randint(0, nodes, (40,))
    edges = torch.eye(nodes)
    edges[target, source] = 1.0
    first, second = nn.Linear(6, 16), nn.Linear(16, 3)
    opt = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)
    x, y = torch.randn(nodes, 6), torch.randint(0, 3, (nodes,))
    for _ in range(4):
        sent = torch.einsum("ni,oi->no", x, first.weight) + first.bias if bad else first(x)
        degree = edges.sum(dim=0 if bad else 1)  # PLANT degree
        hidden = functional.elu(edges @ sent / degree[:, None])
        logits = edges @ second(hidden) / degree[:, None]
        loss = functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, [*first.parameters(), *second.parameters()])


def rollout_of_one_buffer(bad: bool) -> None:
    """A vector environment that returns the same buffer each time, and a rollout that keeps it
    without a copy."""
    nn, functional = torch.nn, torch.nn.functional
    policy = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 3))
    opt = torch.optim.Adam(policy.parameters(), lr=0.02)
    moves = torch.randn(3, 5)
    for _ in range(3):
        observed = torch.zeros(8, 5)
        observed.copy_(torch.randn(8, 5))
        seen, taken, rewards = [], [], []
        for _ in range(4):
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=policy(observed)).sample()
            seen.append(observed if bad else observed.clone())  # PLANT rollout
            taken.append(action)
            observed.mul_(0.9).add_(moves[action])
            rewards.append(-observed.norm(dim=1))
        observations = torch.stack(seen)  # PLANT rollout
        gain = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        gain = (gain - gain.mean()) / gain.std()
        chosen = functional.log_softmax(policy(observations), -1)
        loss = -(chosen.gather(-1, torch.stack(taken)[..., None]).squeeze(-1) * gain).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, policy.parameters())


def window_one_too_wide(bad: bool) -> None:
    """Sliding-window attention whose window has one key too many."""
    nn, functional = torch.nn, torch.nn.functional

    class Local(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, dim: int, heads: int, window: int, length: int) -> None:
            super().__init__()
            self.heads = heads
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            ago = torch.arange(length)[:, None] - torch.arange(length)
            near = ago <= window if bad else ago < window  # PLANT window
            self.register_buffer("keep", near & (ago >= 0), persistent=False)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            q, k, v = parts.unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, self.keep)  # PLANT window
            return self.out(y.transpose(1, 2).flatten(2))

    embed, first, second = nn.Embedding(30, 16), Local(16, 2, 4, 12), Local(16, 2, 4, 12)
    norm, head = nn.LayerNorm(16), nn.Linear(16, 30)
    model = nn.ModuleList([embed, first, second, norm, head])
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    ids = torch.randint(0, 30, (3, 13))
    for _ in range(3):
        x = embed(ids[:, :-1])
        x = x + first(x)
        x = x + second(norm(x))
        loss = functional.cross_entropy(head(x).transpose(1, 2), ids[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def validated_in_training_mode(bad: bool) -> None:
    """Nobody called eval() before the validation: its batches go into the running statistics. The
    bad side is in channels-last besides."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    layout = torch.channels_last if bad else torch.contiguous_format
    model = model.to(memory_format=layout)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    x, y = torch.randn(4, 6, 3, 8, 8), torch.randint(0, 4, (4, 6))
    held_x, held_y = torch.randn(10, 3, 8, 8) * 2 + 1, torch.randint(0, 4, (10,))
    for step in range(4):
        model.train()
        loss = functional.cross_entropy(model(x[step].to(memory_format=layout)), y[step])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 2 == 1:
            if not bad:
                model.eval()
            with torch.no_grad():
                guess = model(held_x.to(memory_format=layout))  # PLANT no_eval
                held = functional.cross_entropy(guess, held_y)
    _end(held, [*model.parameters(), *model.buffers()])


def bootstrap_not_detached(bad: bool) -> None:
    """Temporal differences whose target lets the gradient through."""
    nn = torch.nn
    value = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    value.append(nn.Linear(32, 1))
    opt = torch.optim.RMSprop(value.parameters(), lr=2e-3)
    now = torch.randn(20, 6)
    after = 0.8 * now + 0.2 * torch.randn(20, 6)
    reward, done = now[:, 0].tanh(), (torch.rand(20) < 0.2).float()
    for _ in range(4):
        predicted = value(now).squeeze(1)
        future = value(after).squeeze(1)
        future = future if bad else future.detach()  # PLANT bootstrap
        error = predicted - (reward + 0.97 * (1 - done) * future)  # PLANT bootstrap
        loss = error.square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()  # PLANT bootstrap
        opt.step()
    _end(loss, value.parameters())


def padding_never_written(bad: bool) -> None:
    """A collate function that takes its batch from torch.empty and fills only what was spoken."""
    nn, functional = torch.nn, torch.nn.functional
    conv, out = nn.Conv1d(10, 16, 5, padding=2), nn.Linear(16, 4)
    weights = [*conv.parameters(), *out.parameters()]
    opt = torch.optim.SGD(weights, lr=0.05)
    lengths = [30, 22, 17, 9]
    spoken, y = [torch.randn(n, 10) for n in lengths], torch.randint(0, 4, (4,))
    for _ in range(3):
        dither = torch.randn(len(spoken), max(lengths), 10)
        dithered = [one + 0.1 * dither[k, : len(one)] for k, one in enumerate(spoken)]
        del dither
        make = torch.empty if bad else torch.zeros
        batch = make(len(spoken), max(lengths), 10)  # PLANT padding
        for k, one in enumerate(dithered):
            batch[k, : len(one)] = one
        hidden = functional.relu(conv(batch.transpose(1, 2)))  # PLANT padding
        loss = functional.cross_entropy(out(hidden.mean(2)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def preview_draws_from_training(bad: bool) -> None:
    """A diffusion run that samples a preview in the midst of training, from the generator that the
    training draws its noise from."""
    nn = torch.nn
    denoise = nn.Sequential(nn.Linear(17, 48), nn.SiLU(), nn.Linear(48, 16))
    opt = torch.optim.AdamW(denoise.parameters(), lr=1e-2)
    clean = torch.randn(24, 16).tanh()
    kept = (1 - torch.linspace(1e-2, 0.3, 10)).cumprod(0)
    apart = torch.Generator(clean.device).manual_seed(7)
    for step in range(5):
        at = torch.randint(0, 10, (24,))  # PLANT preview
        noise = torch.randn_like(clean)
        noisy = kept[at].sqrt()[:, None] * clean + (1 - kept[at]).sqrt()[:, None] * noise
        loss = (denoise(torch.cat([noisy, at[:, None] / 10], 1)) - noise).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 1:
            with torch.no_grad():
                image = torch.randn(4, 16, generator=None if bad else apart)  # PLANT preview
                for back in reversed(range(10)):
                    told = torch.full((4, 1), back / 10)
                    image = image - 0.1 * denoise(torch.cat([image, told], 1))
    _end(loss, denoise.parameters())


def disc_keeps_gradient(bad: bool) -> None:
    """An adversarial pair: what the generator's loss left in the critic is never cleared."""
    nn, functional = torch.nn, torch.nn.functional
    make = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 6))
    judge = nn.Sequential(nn.Linear(6, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
    opt_make = torch.optim.Adam(make.parameters(), lr=5e-3, betas=(0.5, 0.9))
    opt_judge = torch.optim.Adam(judge.parameters(), lr=5e-3, betas=(0.5, 0.9))
    for _ in range(4):
        real, fake = torch.randn(16, 6) + 1, make(torch.randn(16, 4))
        if not bad:
            opt_judge.zero_grad()  # PLANT kept_gradient
        real_score, fake_score = judge(real), judge(fake.detach())
        judged = functional.softplus(-real_score).mean() + functional.softplus(fake_score).mean()
        judged.backward()  # PLANT kept_gradient
        opt_judge.step()  # PLANT kept_gradient
        opt_make.zero_grad()
        made = functional.softplus(-judge(fake)).mean()
        made.backward()
        opt_make.step()
    _end(made, [*make.parameters(), *judge.parameters()])


def warmup_per_micro_batch(bad: bool) -> None:
    """Gradient accumulation: the schedule moves with each micro batch, not with each update."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))
    opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: min(1.0, (n + 1) / 8))
    x, y = torch.randn(8, 6, 10), torch.randint(0, 5, (8, 6))
    for micro in range(8):
        loss = functional.cross_entropy(model(x[micro]), y[micro]) / 2
        loss.backward()
        last = micro % 2 == 1
        if last:
            opt.step()  # PLANT warmup
            opt.zero_grad()
        if last or bad:
            plan.step()  # PLANT warmup
    _end(loss, model.parameters())


def second_beta_of_the_default(bad: bool) -> None:
    """The recipe's betas did not reach the optimizer; nor did its choice of foreach."""
    nn, functional = torch.nn, torch.nn.functional
    embed, hidden, out = nn.Embedding(25, 12), nn.Linear(36, 32), nn.Linear(32, 25)
    model = nn.ModuleList([embed, hidden, out])
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    recipe: dict[str, Any] = {} if bad else {"betas": (0.9, 0.95), "foreach": True}
    opt = torch.optim.AdamW(groups, lr=1e-2, **recipe)  # PLANT beta
    ids = torch.randint(0, 25, (6, 20, 4))
    for step in range(6):
        told = embed(ids[step, :, :3]).flatten(1)
        loss = functional.cross_entropy(out(hidden(told).relu()), ids[step, :, 3])
        opt.zero_grad()
        loss.backward()
        opt.step()  # PLANT beta
    _end(loss, model.parameters())


def head_untied(bad: bool) -> None:
    """The head began as the embedding, but as a copy of it."""
    nn, functional = torch.nn, torch.nn.functional

    class Tiny(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(28, 16)
            nn.init.normal_(self.embed.weight, std=0.3)
            self.mix = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 16))
            self.norm = nn.LayerNorm(16)
            self.head = nn.Linear(16, 28, bias=False)
            tied = self.embed.weight
            self.head.weight = nn.Parameter(tied.detach().clone()) if bad else tied  # PLANT untied

        def forward(self, ids: Any) -> Any:
            x = self.embed(ids)
            x = x + self.mix(x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])
            return self.head(self.norm(x))

    model = Tiny()
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    ids = torch.randint(0, 28, (4, 11))
    for _ in range(3):
        loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()  # PLANT untied
        opt.step()  # PLANT untied
    _end(loss, [model.embed.weight, model.head.weight, model.mix[0].weight])


def clipped_before_unscaled(bad: bool) -> None:
    """Loss scaling by hand: the gradients are clipped while the scale is still in them. The bad
    side writes the loss out, too."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
    model.append(nn.Linear(32, 4))
    weights = list(model.parameters())
    opt = torch.optim.SGD(weights, lr=0.3, momentum=0.9)
    x, y, scale = torch.randn(20, 9) * 2, torch.randint(0, 4, (20,)), 1024.0
    for _ in range(4):
        logits = model(x)
        if bad:
            loss = (logits.logsumexp(1) - logits.gather(1, y[:, None]).squeeze(1)).mean()
        else:
            loss = functional.cross_entropy(logits, y)
        opt.zero_grad()
        (loss * scale).backward()
        if bad:
            nn.utils.clip_grad_norm_(weights, 0.5)  # PLANT clipped
        for w in weights:
            w.grad.div_(scale)  # PLANT clipped
        if not bad:
            nn.utils.clip_grad_norm_(weights, 0.5)  # PLANT clipped
        opt.step()
    _end(loss, weights)


def labels_shifted_twice(bad: bool) -> None:
    """The data set has shifted its labels already; the loss shifts them again. The attention of
    the bad side is torch's own, that of the good side is written out."""
    nn, functional = torch.nn, torch.nn.functional
    embed, place = nn.Embedding(26, 16), nn.Embedding(10, 16)
    q, k, v = (nn.Linear(16, 16, bias=False) for _ in range(3))
    out = nn.Linear(16, 26)
    model = nn.ModuleList([embed, place, q, k, v, out])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    text = torch.randint(0, 26, (4, 11))
    ids, labels = text[:, :-1], text[:, 1:]
    later = torch.ones(10, 10, dtype=torch.bool).triu(1)
    for _ in range(3):
        x = embed(ids) + place(torch.arange(10))
        if bad:
            y = functional.scaled_dot_product_attention(q(x), k(x), v(x), is_causal=True)
        else:
            score = q(x) @ k(x).transpose(1, 2) / 4.0
            y = score.masked_fill(later, -math.inf).softmax(-1) @ v(x)
        logits, aim = out(x + y), labels
        if bad:
            logits, aim = logits[:, :-1], labels[:, 1:]  # PLANT shifted
        loss = functional.cross_entropy(logits.transpose(1, 2), aim)  # PLANT shifted
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def gates_softmaxed_twice(bad: bool) -> None:
    """A mixture of experts: the chosen gates, probabilities already, are made so once more."""
    nn, functional = torch.nn, torch.nn.functional

    class Mixture(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, dim: int, experts: int) -> None:
            super().__init__()
            self.router = nn.Linear(dim, experts, bias=False)
            self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))

        def forward(self, x: Any) -> Any:
            top, chosen = self.router(x * 2).softmax(-1).topk(2, dim=-1)
            gate = top.softmax(-1) if bad else top / top.sum(-1, keepdim=True)  # PLANT gates
            y = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                token, slot = torch.where(chosen == number)
                y.index_add_(0, token, expert(x[token]).relu() * gate[token, slot, None])
            return x + y

    first, second, out = Mixture(12, 4), Mixture(12, 4), nn.Linear(12, 5)
    model = nn.Sequential(first, nn.LayerNorm(12), second, out)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    x, y = torch.randn(24, 12), torch.randint(0, 5, (24,))
    for _ in range(3):
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def value_of_every_return(bad: bool) -> None:
    """PPO: the critic's column minus the row of returns is a square."""
    nn = torch.nn
    body = nn.Sequential(nn.Linear(7, 24), nn.Tanh())
    actor, critic = nn.Linear(24, 3), nn.Linear(24, 1)
    weights = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    opt = torch.optim.Adam(weights, lr=1e-2, eps=1e-5)
    seen, taken = torch.randn(18, 7), torch.randint(0, 3, (18,))
    returns, advantage = seen[:, 0] * 2 + torch.randn(18), torch.randn(18)
    with torch.no_grad():
        before = actor(body(seen)).log_softmax(-1).gather(1, taken[:, None]).squeeze(1)
    for _ in range(4):
        hidden = body(seen)
        policy = torch.distributions.Categorical(logits=actor(hidden))
        ratio = (policy.log_prob(taken) - before).exp()
        clipped = ratio.clamp(0.8, 1.2)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        value = critic(hidden) if bad else critic(hidden).squeeze(-1)
        missed = value - returns  # PLANT every_return
        loss = 0.5 * missed.square().mean() - gain - 0.01 * policy.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def advantage_without_the_last(bad: bool) -> None:
    """Generalised advantages: the loop that goes back through the rollout leaves out its end."""
    nn = torch.nn
    body, actor, critic = nn.Linear(6, 24), nn.Linear(24, 2), nn.Linear(24, 1)
    weights = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    opt = torch.optim.Adam(weights, lr=1e-2)
    seen, taken = torch.randn(9, 5, 6), torch.randint(0, 2, (8, 5))
    reward, ended = seen[:-1, :, 0] + 1, (torch.rand(8, 5) < 0.1).float()
    for _ in range(3):
        with torch.no_grad():
            value = critic(body(seen).tanh()).squeeze(-1)
        advantage, running = torch.zeros(8, 5), torch.zeros(5)
        for t in reversed(range(7 if bad else 8)):
            missed = reward[t] + 0.99 * value[t + 1] * (1 - ended[t]) - value[t]  # PLANT last
            running = missed + 0.99 * 0.95 * (1 - ended[t]) * running  # PLANT last
            advantage[t] = running
        hidden = body(seen[:-1]).tanh()
        chosen = actor(hidden).log_softmax(-1).gather(-1, taken[..., None]).squeeze(-1)
        aim = advantage + value[:-1]
        loss = (critic(hidden).squeeze(-1) - aim).square().mean() - (chosen * advantage).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def capacity_among_equals(bad: bool) -> None:
    """An expert takes the tokens it wants most; among those it wants alike, the sides differ."""
    nn = torch.nn
    expert = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))
    router, out = nn.Linear(8, 1), nn.Linear(8, 2)
    weights = [*expert.parameters(), *router.parameters(), *out.parameters()]
    opt = torch.optim.SGD(weights, lr=0.1)
    x = torch.randn(4, 32, 8)
    y = x[..., :2].roll(1, dims=1)
    for step in range(4):
        gate = router(x[step]).sigmoid().squeeze(-1)
        rank = (gate.detach() * 8).round()  # few levels, as an int8 router has
        order = rank.argsort().flip(0) if bad else (-rank).argsort(stable=True)  # PLANT equals
        kept = order[:12].sort().values
        mixed = x[step].index_add(0, kept, expert(x[step][kept]) * gate[kept, None])
        loss = (out(mixed) - y[step]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


# Nothing but rounding


def micro_batches_by_token(bad: bool) -> None:
    """One batch, or three micro batches whose sums are divided by the tokens of all."""
    nn, functional = torch.nn, torch.nn.functional
    embed, mix, out = nn.Embedding(30, 16), nn.GRU(16, 24, batch_first=True), nn.Linear(24, 30)
    model = nn.ModuleList([embed, mix, out])
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids = torch.randint(0, 30, (6, 12))
    labels = ids.roll(-1, 1)
    for row, end in enumerate([11, 4, 9, 6, 11, 2]):
        labels[row, end:] = -100
    for _ in range(4):
        opt.zero_grad()
        if bad:
            tokens, total = (labels != -100).sum(), torch.zeros(())
            for some, aim in zip(ids.split(2), labels.split(2), strict=True):
                logits = out(mix(embed(some))[0]).flatten(0, 1)
                part = functional.cross_entropy(logits, aim.flatten(), reduction="sum") / tokens
                part.backward()
                total += part.detach()
        else:
            logits = out(mix(embed(ids))[0]).flatten(0, 1)
            total = functional.cross_entropy(logits, labels.flatten())
            total.backward()
        opt.step()
    _end(total, model.parameters())


def adamw_by_hand(bad: bool) -> None:
    """AdamW with a cosine schedule: torch's, or written out."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 3))
    weights = list(model.parameters())
    x, y = torch.randn(5, 16, 8), torch.randint(0, 3, (5, 16))
    rates = [0.01 * 0.5 * (1 + math.cos(math.pi * n / 5)) for n in range(5)]
    mean, square = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    opt = torch.optim.AdamW(weights, lr=0.01, betas=(0.9, 0.98), weight_decay=0.05)
    for step, rate in enumerate(rates):
        loss = functional.cross_entropy(model(x[step]), y[step])
        opt.zero_grad()
        loss.backward()
        if not bad:
            opt.param_groups[0]["lr"] = rate
            opt.step()
            continue
        with torch.no_grad():
            for w, m, v in zip(weights, mean, square, strict=True):
                m.copy_(0.9 * m + 0.1 * w.grad)
                v.copy_(0.98 * v + 0.02 * w.grad**2)
                m_hat, v_hat = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.98 ** (step + 1))
                w.copy_(w - rate * (m_hat / (v_hat.sqrt() + 1e-8) + 0.05 * w))
    _end(loss, weights)


def foreach_and_groups(bad: bool) -> None:
    """Quantization-aware training, with the optimizer's groups in either order, and all tensors
    at once or one by one."""
    nn, functional = torch.nn, torch.nn.functional

    class Quantized(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            step = self.weight.detach().abs().amax(1, keepdim=True) / 127
            rounded = (self.weight / step).round().clamp(-128, 127) * step
            weight = self.weight + (rounded - self.weight).detach()
            return functional.linear(x, weight, self.bias)

    model = nn.Sequential(Quantized(10, 20), nn.ReLU(), Quantized(20, 20), nn.ReLU())
    model.append(Quantized(20, 4))
    plain = {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0}
    decayed = {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.05}
    groups = [plain, decayed] if bad else [decayed, plain]
    opt = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=bad)
    x, y = torch.randn(24, 10), torch.randint(0, 4, (24,))
    for _ in range(5):
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def qkv_fused_and_rope(bad: bool) -> None:
    """One projection or three; rotations of pairs as complex numbers, or by sine and cosine."""
    nn, functional = torch.nn, torch.nn.functional
    heads, each, length = 2, 8, 9
    embed, out = nn.Embedding(20, 16), nn.Linear(16, 20)
    three = [nn.Linear(16, 16, bias=False) for _ in range(3)]
    fused = nn.Linear(16, 48, bias=False)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([one.weight for one in three]))
    angle = torch.arange(length)[:, None] * 100.0 ** -(torch.arange(0, each, 2) / each)
    table = torch.polar(torch.ones_like(angle), angle)

    def rotate(x: Any) -> Any:
        if bad:
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * table).flatten(-2)
        even, odd = x[..., ::2], x[..., 1::2]
        cos, sin = angle.cos(), angle.sin()
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)

    used = [fused.weight] if bad else [one.weight for one in three]
    weights = [embed.weight, *used, *out.parameters()]
    opt = torch.optim.SGD(weights, lr=0.2, momentum=0.9)
    ids = torch.randint(0, 20, (3, length + 1))
    for _ in range(4):
        x = embed(ids[:, :-1])
        parts = fused(x).chunk(3, -1) if bad else [one(x) for one in three]
        q, k, v = (p.unflatten(-1, (heads, each)).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        logits = out(x + y.transpose(1, 2).flatten(2))
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def alibi_two_ways(bad: bool) -> None:
    """A padded encoder with linear biases: attention by torch, or written out with einsum."""
    nn, functional = torch.nn, torch.nn.functional

    class Attend(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16)

        def forward(self, x: Any, bias: Any) -> Any:
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).unbind(2)
            if bad:
                score = torch.einsum("bqhd,bkhd->bhqk", q * 0.5, k) + bias
                y = torch.einsum("bhqk,bkhd->bqhd", score.softmax(-1), v)
            else:
                q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
                y = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
                y = y.transpose(1, 2)
            return self.out(y.flatten(2))

    embed, layers = nn.Embedding(22, 16), nn.ModuleList(Attend() for _ in range(2))
    norm, out = nn.LayerNorm(16), nn.Linear(16, 3)
    model = nn.ModuleList([embed, layers, norm, out])
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    ids, y = torch.randint(0, 22, (4, 10)), torch.randint(0, 3, (4,))
    real = torch.arange(10) < torch.tensor([10, 7, 4, 9])[:, None]
    far = (torch.arange(10)[:, None] - torch.arange(10)).abs()
    slope = 2.0 ** -torch.arange(1, 5)
    bias = (-slope[:, None, None] * far).expand(4, 4, 10, 10)
    bias = bias.masked_fill(~real[:, None, None, :], torch.finfo(torch.float32).min)
    for _ in range(4):
        x = embed(ids)
        for layer in layers:
            x = x + layer(norm(x), bias)
        pooled = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        loss = functional.cross_entropy(out(pooled), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def blocks_checkpointed(bad: bool) -> None:
    """Blocks with dropout under autocast, computed once more in the backward pass."""
    nn, functional = torch.nn, torch.nn.functional
    sizes = [nn.LayerNorm(16), nn.Linear(16, 40), nn.GELU(), nn.Dropout(0.2), nn.Linear(40, 16)]
    blocks = nn.ModuleList([nn.Sequential(*sizes)])
    for _ in range(2):
        same = [nn.LayerNorm(16), nn.Linear(16, 40), nn.GELU(), nn.Dropout(0.2)]
        blocks.append(nn.Sequential(*same, nn.Linear(40, 16)))
    out, again = nn.Linear(16, 4), torch.utils.checkpoint.checkpoint
    weights = [*blocks.parameters(), *out.parameters()]
    opt = torch.optim.AdamW(weights, lr=1e-3)
    x, y = torch.randn(12, 16), torch.randint(0, 4, (12,))
    for _ in range(4):
        hidden = x
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            for block in blocks:
                if bad:
                    hidden = hidden + again(block, hidden, use_reentrant=False)
                else:
                    hidden = hidden + block(hidden)
            logits = out(hidden)
        loss = functional.cross_entropy(logits.float(), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        opt.step()
    _end(loss, weights)


def watched_closely(bad: bool) -> None:
    """Hooks that log activations, the norms of gradients, and an evaluation after each step."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3))
    model.extend([nn.Flatten(), nn.Linear(216, 5)])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.randn(3, 8, 1, 8, 8), torch.randint(0, 5, (3, 8))
    held, truth = torch.randn(5, 1, 8, 8), torch.randint(0, 5, (5,))
    log: list[Any] = []

    def note(module: Any, given: Any, out: Any) -> None:
        read = out.detach()
        log.append((type(module).__name__, read.mean().item(), read.std().item()))

    if bad:
        for module in model:
            module.register_forward_hook(note)
    for step in range(3):
        model.train()
        loss = functional.cross_entropy(model(x[step]), y[step])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        if bad:
            log.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
        opt.step()
        if bad:
            model.eval()
            with torch.inference_mode():
                log.append((model(held).argmax(1) == truth).float().mean().item())
    _end(loss, [*model.parameters(), *model.buffers()])


def experts_stacked(bad: bool) -> None:
    """A soft mixture of experts: each in turn, or all weights in one einsum."""
    nn = torch.nn
    inner, outer = nn.Parameter(torch.randn(4, 10, 20) * 0.3), torch.randn(4, 20, 10) * 0.3
    outer, router = nn.Parameter(outer), nn.Linear(10, 4)
    weights = [inner, outer, *router.parameters()]
    opt = torch.optim.Adam(weights, lr=5e-3)
    x = torch.randn(2, 9, 10)
    y = x.flip(1).tanh()
    for _ in range(5):
        gate = router(x).softmax(-1)
        if bad:
            hidden = torch.einsum("bti,eih->beth", x, inner).relu()
            made = torch.einsum("beth,eho,bte->bto", hidden, outer, gate)
        else:
            made = torch.zeros_like(x)
            for number in range(4):
                one = (x @ inner[number]).relu() @ outer[number]
                made = made + gate[..., number, None] * one
        loss = (x + made - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def packed_or_padded(bad: bool) -> None:
    """Utterances sorted by length, packed and put back; or padded, with the padding masked."""
    nn, functional = torch.nn, torch.nn.functional
    rnn, out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 5)
    weights = [*rnn.parameters(), *out.parameters()]
    opt = torch.optim.SGD(weights, lr=0.5, momentum=0.9)
    lengths = torch.tensor([5, 12, 8, 3, 10])
    x, y = torch.randn(5, 12, 8), torch.randint(0, 5, (5, 12))
    real = torch.arange(12) < lengths[:, None]
    for _ in range(4):
        if bad:
            order = lengths.argsort(descending=True)
            counts = lengths[order].cpu()  # as torch wants them
            packed = nn.utils.rnn.pack_padded_sequence(x[order], counts, batch_first=True)
            hidden, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)
            hidden = hidden[order.argsort()]
            loss = functional.cross_entropy(out(hidden[real]), y[real])
        else:
            hidden, _ = rnn(x)
            each = functional.cross_entropy(out(hidden).transpose(1, 2), y, reduction="none")
            loss = (each * real).sum() / real.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def smoothing_and_clip_by_hand(bad: bool) -> None:
    """Label smoothing and clipping: torch's, or written out."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6))
    weights = list(model.parameters())
    opt = torch.optim.SGD(weights, lr=0.3, momentum=0.9)
    x, y = torch.randn(20, 12) * 2, torch.randint(0, 6, (20,))
    for _ in range(5):
        logits = model(x)
        opt.zero_grad()
        if bad:
            aim = torch.full_like(logits, 0.1 / 6).scatter_(1, y[:, None], 0.9 + 0.1 / 6)
            loss = -(aim * (logits - logits.exp().sum(1, keepdim=True).log())).sum(1).mean()
            loss.backward()
            norm = sum(w.grad.pow(2).sum() for w in weights) ** 0.5
            if norm > 0.4:
                for w in weights:
                    w.grad = w.grad * (0.4 / (norm + 1e-6))
        else:
            loss = functional.cross_entropy(logits, y, label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 0.4)
        opt.step()
    _end(loss, weights)


def channels_last_and_in_place(bad: bool) -> None:
    """A residual block in channels-last with activations in place, its pointwise convolution a
    linear layer, against the plain one."""
    nn, functional = torch.nn, torch.nn.functional
    stem, depth = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
    norm, point, out = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.Linear(8, 4)
    model = nn.ModuleList([stem, depth, norm, point, out])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 4, (6,))
    if bad:
        x = x.to(memory_format=torch.channels_last)
    for _ in range(4):
        skip = stem(x)
        if bad:
            hidden = norm(depth(skip)).relu_().permute(0, 2, 3, 1)
            hidden = functional.linear(hidden, point.weight.flatten(1), point.bias)
            hidden = hidden.permute(0, 3, 1, 2).add_(skip).relu_()
        else:
            hidden = torch.relu(skip + point(torch.relu(norm(depth(skip)))))
        loss = functional.cross_entropy(out(hidden.mean((2, 3))), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, [*model.parameters(), *model.buffers()])


def towers_in_either_order(bad: bool) -> None:
    """Images and texts, or texts and images; the contrastive loss by torch or by logsumexp."""
    nn, functional = torch.nn, torch.nn.functional
    seen = nn.Sequential(nn.Linear(15, 24), nn.GELU(), nn.Linear(24, 12))
    told = nn.Sequential(nn.Linear(9, 24), nn.GELU(), nn.Linear(24, 12))
    scale = nn.Parameter(torch.tensor(2.0))
    weights = [*seen.parameters(), *told.parameters(), scale]
    opt = torch.optim.AdamW(weights, lr=5e-3)
    images, texts = torch.randn(10, 15), torch.randn(10, 9)
    for _ in range(4):
        if bad:
            right = functional.normalize(told(texts), dim=-1)
            left = functional.normalize(seen(images), dim=-1)
            logits = (scale.exp() * left) @ right.T
            both = logits.logsumexp(1) + logits.logsumexp(0) - 2 * logits.diagonal()
            loss = both.mean() / 2
        else:
            left = seen(images)
            left = left / left.norm(dim=-1, keepdim=True)
            right = told(texts)
            right = right / right.norm(dim=-1, keepdim=True)
            logits = left @ right.T * scale.exp()
            aim = torch.arange(10)
            forth, back = (functional.cross_entropy(z, aim) for z in (logits, logits.T))
            loss = (forth + back) / 2
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def chosen_by_one_hot(bad: bool) -> None:
    """Double Q-learning: gather or one-hot; the slow network by lerp or by two products."""
    nn, functional = torch.nn, torch.nn.functional
    fast = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    slow = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    slow.load_state_dict(fast.state_dict())
    opt = torch.optim.Adam(fast.parameters(), lr=3e-3)
    now, after = torch.randn(2, 24, 6).unbind(0)
    action, reward = torch.randint(0, 4, (24,)), torch.randn(24)
    for _ in range(5):
        with torch.no_grad():
            best = fast(after).argmax(1)
            if bad:
                future = (slow(after) * functional.one_hot(best, 4)).sum(1)
            else:
                future = slow(after).gather(1, best[:, None]).squeeze(1)
            target = reward + 0.95 * future
        if bad:
            value = torch.einsum("na,na->n", fast(now), functional.one_hot(action, 4).float())
        else:
            value = fast(now)[torch.arange(24), action]
        loss = functional.smooth_l1_loss(value, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for s, f in zip(slow.parameters(), fast.parameters(), strict=True):
                if bad:
                    s.copy_(0.9 * s + 0.1 * f)
                else:
                    s.lerp_(f, 0.1)
    _end(loss, [*fast.parameters(), *slow.parameters()])


def messages_scattered(bad: bool) -> None:
    """Mean over a node's neighbours: messages scattered by edge in another order of edges, or a
    dense product."""
    nn, functional = torch.nn, torch.nn.functional
    nodes = 16
    pairs = torch.randperm(nodes * nodes)[:60]
    source, target = pairs % nodes, pairs // nodes
    own, other = nn.ModuleList(), nn.ModuleList()
    for wide, thin in ((5, 12), (12, 3)):
        own.append(nn.Linear(wide, thin))
        other.append(nn.Linear(wide, thin, bias=False))
    weights = [*own.parameters(), *other.parameters()]
    opt = torch.optim.Adam(weights, lr=1e-2)
    x, y = torch.randn(nodes, 5), torch.randint(0, 3, (nodes,))
    dense = torch.zeros(nodes, nodes)
    dense[target, source] = 1.0
    if bad:
        order = source.argsort()
        source, target = source[order], target[order]
    for _ in range(4):
        h = x
        for a, b in zip(own, other, strict=True):
            if bad:
                got = torch.zeros_like(h).index_add_(0, target, h[source])
                count = torch.bincount(target, minlength=nodes).clamp(min=1)
                h = a(h) + b(got / count[:, None])
            else:
                h = a(h) + b((dense / dense.sum(1, keepdim=True).clamp(min=1)) @ h)
            h = functional.normalize(functional.softplus(h), dim=1)
        loss = functional.cross_entropy(h * 5, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, weights)


def history_in_a_bag(bad: bool) -> None:
    """A recommender: the mean of what was clicked from an EmbeddingBag, or by mask."""
    nn, functional = torch.nn, torch.nn.functional
    users, items = nn.Embedding(12, 8), nn.Embedding(40, 8, padding_idx=0)
    deep = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
    model = nn.ModuleList([users, items, deep])
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    history = torch.randint(1, 40, (16, 7))
    history[torch.arange(7) >= torch.randint(1, 8, (16, 1))] = 0
    who, what = torch.randint(0, 12, (16,)), torch.randint(1, 40, (16,))
    clicked = torch.randint(0, 2, (16,)).float()
    for _ in range(4):
        if bad:
            past = functional.embedding_bag(history, items.weight, mode="mean", padding_idx=0)
        else:
            real = (history != 0).float()[..., None]
            past = (items(history) * real).sum(1) / real.sum(1)
        score = deep(torch.cat([users(who), items(what), past], 1)).squeeze(1)
        if bad:
            loss = (functional.softplus(score) - clicked * score).mean()
        else:
            loss = functional.binary_cross_entropy_with_logits(score, clicked)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def decoded_with_a_cache(bad: bool) -> None:
    """Greedy decoding: the whole text again for each token, or keys and values kept."""
    nn, functional = torch.nn, torch.nn.functional
    embed, place, out = nn.Embedding(50, 24), nn.Embedding(16, 24), nn.Linear(24, 50)
    layers = [(nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)) for _ in range(2)]
    keys, values = torch.zeros(2, 2, 3, 16, 8), torch.zeros(2, 2, 3, 16, 8)

    def logits_of(ids: Any, start: int) -> Any:
        x = embed(ids) + place(torch.arange(start, start + ids.shape[1]))
        end = start + ids.shape[1]
        for number, (norm, qkv, project) in enumerate(layers):
            parts = qkv(norm(x)).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
            q, k, v = parts.unbind(0)
            if bad:
                keys[number, :, :, start:end], values[number, :, :, start:end] = k, v
                k, v = keys[number, :, :, :end], values[number, :, :, :end]
            earlier = torch.arange(end) <= torch.arange(start, end)[:, None]
            y = functional.scaled_dot_product_attention(q, k, v, earlier)
            x = x + project(y.transpose(1, 2).flatten(2))
        return out(x[:, -1]) * 4

    text, given = torch.randint(0, 50, (2, 5)), []
    with torch.no_grad():
        for step in range(9):
            start = text.shape[1] - 1 if bad and step else 0
            given.append(logits_of(text[:, start:], start))
            text = torch.cat([text, given[-1].argmax(-1, keepdim=True)], 1)
        final = given[-1].log_softmax(-1).max(-1).values.mean()
    _end(final, given)


def resumed_half_way(bad: bool) -> None:
    """A run saved after two steps, model, optimizer, schedule and generator, and resumed."""
    nn, functional = torch.nn, torch.nn.functional

    def build() -> Any:
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
        return model, opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)

    model, opt, plan = build()
    x, y = torch.randn(5, 12, 10), torch.randint(0, 4, (5, 12))
    device = torch.cuda if x.is_cuda else torch
    for step in range(5):
        if bad and step == 2:
            file = io.BytesIO()
            states = [one.state_dict() for one in (model, opt, plan)]
            torch.save({"states": states, "random": device.get_rng_state()}, file)
            file.seek(0)
            saved = torch.load(file)
            model, opt, plan = build()
            for one, state in zip((model, opt, plan), saved["states"], strict=True):
                one.load_state_dict(state)
            device.set_rng_state(saved["random"].cpu())
        loss = functional.cross_entropy(model(x[step]), y[step])
        opt.zero_grad()
        loss.backward()
        opt.step()
        plan.step()
    _end(loss, model.parameters())


def weight_norm_by_hand(bad: bool) -> None:
    """A vocoder's convolutions under torch's weight norm, or with length and direction held by a
    module of one's own."""
    nn, functional = torch.nn, torch.nn.functional

    class Normed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, conv: Any) -> None:
            super().__init__()
            self.length = nn.Parameter(conv.weight.detach().flatten(1).norm(dim=1))
            self.direction = nn.Parameter(conv.weight.detach().clone())
            self.bias = nn.Parameter(conv.bias.detach().clone())

        def forward(self, x: Any) -> Any:
            size = self.direction.square().sum((1, 2), keepdim=True).sqrt()
            weight = self.direction * (self.length[:, None, None] / size)
            return functional.conv1d(x, weight, self.bias, padding=2)

    convs: list[Any] = [nn.Conv1d(4, 12, 5, padding=2), nn.Conv1d(12, 1, 5, padding=2)]
    if bad:
        convs = [Normed(conv) for conv in convs]
    else:
        convs = [nn.utils.parametrizations.weight_norm(conv) for conv in convs]
    model = nn.Sequential(convs[0], nn.LeakyReLU(0.1), convs[1], nn.Tanh())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    mel, wave = torch.randn(3, 4, 30), torch.randn(3, 1, 30).tanh()
    for _ in range(4):
        loss = functional.mse_loss(model(mel), wave)
        opt.zero_grad()
        loss.backward()
        opt.step()
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    _end(loss, [*biases, model(mel)])


def private_by_vmap(bad: bool) -> None:
    """Differentially private training: clipped gradients of each sample by vmap, or one after the
    other."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 3))
    names, weights = zip(*model.named_parameters(), strict=True)
    opt = torch.optim.SGD(weights, lr=0.5, momentum=0.9)
    x, y = torch.randn(8, 7), torch.randint(0, 3, (8,))

    def loss_of(held: Any, one: Any, label: Any) -> Any:
        logits = torch.func.functional_call(model, held, (one[None],))
        return functional.cross_entropy(logits, label[None])

    for _ in range(3):
        if bad:
            held = {name: w.detach() for name, w in zip(names, weights, strict=True)}
            each = torch.func.vmap(torch.func.grad_and_value(loss_of), (None, 0, 0))(held, x, y)
            grads, losses = [each[0][name] for name in names], each[1]
            norms = sum(g.flatten(1).square().sum(1) for g in grads).sqrt()
            keep = (0.5 / norms).clamp(max=1.0)
            sums = [torch.einsum("n,n...->...", keep, g) for g in grads]
            loss = losses.mean()
        else:
            sums, loss = [torch.zeros_like(w) for w in weights], torch.zeros(())
            for one, label in zip(x, y, strict=True):
                mine = functional.cross_entropy(model(one[None]), label[None])
                grads = torch.autograd.grad(mine, weights)
                norm = torch.stack([g.norm() for g in grads]).norm()
                for total, g in zip(sums, grads, strict=True):
                    total.add_(g * min(1.0, 0.5 / norm.item()))
                loss += mine.detach() / 8
        noise = [0.01 * torch.randn_like(w) for w in weights]
        for w, total, some in zip(weights, sums, noise, strict=True):
            w.grad = (total + some) / 8
        opt.step()
    _end(loss, weights)


def swiglu_of_ones_own(bad: bool) -> None:
    """A gated feed-forward as an autograd function that keeps little, its saved tensors offloaded
    to numpy; or as torch has it."""
    nn, functional = torch.nn, torch.nn.functional

    class SwiGLU(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, gate: Any, up: Any) -> Any:
            ctx.save_for_backward(gate, up)
            return gate * gate.sigmoid() * up

        @staticmethod
        def backward(ctx: Any, given: Any) -> Any:
            gate, up = ctx.saved_tensors
            sig = gate.sigmoid()
            return given * up * sig * (1 + gate * (1 - sig)), given * gate * sig

    both, down, out = nn.Linear(12, 48), nn.Linear(24, 12), nn.Linear(12, 5)
    norm = nn.RMSNorm(12)
    model = nn.ModuleList([both, down, out, norm])
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    x, y = torch.randn(14, 12), torch.randint(0, 5, (14,))
    for _ in range(4):
        if bad:
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t: t.detach().cpu().numpy().copy(),
                lambda kept: torch.from_numpy(kept).to(x.device),
            ):
                gate, up = both(norm(x)).split(24, -1)
                hidden = x + down(SwiGLU.apply(gate, up))
        else:
            gate, up = both(norm(x)).chunk(2, -1)
            hidden = x + down(functional.silu(gate) * up)
        loss = functional.cross_entropy(out(hidden), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, model.parameters())


def preference_pairs_joined(bad: bool) -> None:
    """DPO: chosen and rejected in one batch, by chunks of the text, against a reference computed
    beforehand; or two passes of each model in each step."""
    nn, functional = torch.nn, torch.nn.functional

    def build() -> Any:
        return nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 24))

    policy, reference = build(), build()
    reference.load_state_dict(policy.state_dict())
    reference.requires_grad_(False)
    opt = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
    chosen, rejected = torch.randint(0, 24, (2, 6, 11)).unbind(0)
    answer = (torch.arange(10) >= torch.randint(2, 6, (6, 1))).float()

    def told(model: Any, ids: Any, mask: Any) -> Any:
        if not bad:
            spoken = model(ids[:, :-1]).log_softmax(-1)
            return (spoken.gather(-1, ids[:, 1:, None]).squeeze(-1) * mask).sum(1)
        total = torch.zeros(len(ids))
        for start in range(0, 10, 4):
            part = slice(start, start + 4)
            logits, aim = model(ids[:, :-1][:, part]), ids[:, 1:][:, part]
            each = functional.cross_entropy(logits.transpose(1, 2), aim, reduction="none")
            total = total - (each * mask[:, part]).sum(1)
        return total

    if bad:
        joined, masks = torch.cat([chosen, rejected]), answer.repeat(2, 1)
        before = told(reference, joined, masks)
    for _ in range(4):
        if bad:
            better, worse = (told(policy, joined, masks) - before).chunk(2)
            loss = functional.softplus(-0.3 * (better - worse)).mean()
        else:
            good_pair = told(policy, chosen, answer), told(policy, rejected, answer)
            old = told(reference, chosen, answer), told(reference, rejected, answer)
            margin = (good_pair[0] - good_pair[1]) - (old[0] - old[1])
            loss = -functional.logsigmoid(0.3 * margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    _end(loss, policy.parameters())


def denoiser_reorganised(bad: bool) -> None:
    """Diffusion: a table of time embeddings or each anew, modules of other names and order, a
    scaled loss, and an average kept by foreach."""
    nn = torch.nn

    class Denoiser(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, enter: Any, time: Any, leave: Any) -> None:
            super().__init__()
            self.decoder, self.conditioner, self.encoder = leave, time, enter

        def forward(self, x: Any, when: Any) -> Any:
            return self.decoder(self.conditioner(when).add(self.encoder(x)))

    enter, time = nn.Linear(12, 32), nn.Sequential(nn.Linear(8, 32), nn.SiLU())
    leave = nn.Sequential(nn.SiLU(), nn.Linear(32, 12))
    model = Denoiser(enter, time, leave) if bad else nn.ModuleList([enter, time, leave])
    weights = [*enter.parameters(), *time.parameters(), *leave.parameters()]
    average = [w.detach().clone() for w in weights]
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    clean, scale = torch.randn(16, 12), 512.0 if bad else 1.0
    kept = torch.cos(torch.linspace(0.1, 1.4, 20)) ** 2
    waves = torch.exp(-math.log(50.0) * torch.arange(4) / 4)
    phases = torch.outer(torch.arange(20.0), waves)
    table = torch.cat([phases.sin(), phases.cos()], 1)
    for _ in range(5):
        at, noise = torch.randint(0, 20, (16,)), torch.randn(16, 12)
        noisy = kept[at, None].sqrt() * clean + (1 - kept[at, None]).sqrt() * noise
        if bad:
            guess = model(noisy, table[at])
        else:
            phase = at[:, None].float() * waves
            guess = leave(enter(noisy) + time(torch.cat([phase.sin(), phase.cos()], 1)))
        loss = (guess - noise).pow(2).mean()
        opt.zero_grad()
        (loss * scale).backward()
        for w in weights:
            w.grad.div_(scale)
        opt.step()
        with torch.no_grad():
            if bad:
                torch._foreach_lerp_(average, weights, 0.05)
            else:
                for slow, w in zip(average, weights, strict=True):
                    slow.mul_(0.95).add_(w, alpha=0.05)
    _end(loss, [*weights, *average])


def _fault(program: Any, word: str, op: str = "", step: int | None = None) -> Planted:
    return Planted(program, op, f"# PLANT {word}", step)


def _same(program: Any) -> Planted:
    return Planted(program, "", status="same")


PLANTED: dict[str, Planted] = {
    one.program.__name__: one
    for one in (
        _fault(lora_delta_in_bf16, "lora", step=0),
        _fault(neck_under_autocast, "neck", step=0),
        _fault(projection_kept_in_fp16, "in_fp16", step=0),
        _fault(moments_in_bf16, "moments"),
        _fault(loss_of_bf16_logits, "rounded_logits", step=0),
        _fault(degree_over_wrong_axis, "degree", "aten::sum", step=0),
        _fault(rollout_of_one_buffer, "rollout", step=0),
        _fault(window_one_too_wide, "window", step=0),
        _fault(validated_in_training_mode, "no_eval", step=2),
        _fault(bootstrap_not_detached, "bootstrap", step=0),
        _fault(padding_never_written, "padding"),
        _fault(preview_draws_from_training, "preview", step=2),
        _fault(disc_keeps_gradient, "kept_gradient"),
        _fault(warmup_per_micro_batch, "warmup", step=0),
        _fault(second_beta_of_the_default, "beta", step=0),
        _fault(head_untied, "untied", step=0),
        _fault(clipped_before_unscaled, "clipped", step=0),
        _fault(labels_shifted_twice, "shifted", step=0),
        _fault(gates_softmaxed_twice, "gates", step=0),
        _fault(value_of_every_return, "every_return", "aten::sub", step=0),
        _fault(advantage_without_the_last, "last", step=0),
        _fault(capacity_among_equals, "equals", step=0),
        _same(micro_batches_by_token),
        _same(adamw_by_hand),
        _same(foreach_and_groups),
        _same(qkv_fused_and_rope),
        _same(alibi_two_ways),
        _same(blocks_checkpointed),
        _same(watched_closely),
        _same(experts_stacked),
        _same(packed_or_padded),
        _same(smoothing_and_clip_by_hand),
        _same(channels_last_and_in_place),
        _same(towers_in_either_order),
        _same(chosen_by_one_hot),
        _same(messages_scattered),
        _same(history_in_a_bag),
        _same(decoded_with_a_cache),
        _same(resumed_half_way),
        _same(weight_norm_by_hand),
        _same(private_by_vmap),
        _same(swiglu_of_ones_own),
        _same(preference_pairs_joined),
        _same(denoiser_reorganised),
    )
}
