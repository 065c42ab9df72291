"""Forty-eight planted pairs shaped like what people port, refactor or optimise in training code. In
all of them the flow of control differs between the sides somewhere: in twenty it does no harm.
"""

import copy
import itertools
import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs
functional: Any = sys.modules.get("torch.nn.functional")


def _network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))


def _linears(*sizes: int) -> list[Any]:
    return [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]


# Those with a fault.


def uneven_micro_batches(bad: bool) -> None:
    model, x, y = _network(), torch.randn(20, 32), torch.randn(20, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            parts = list(zip(x.split(8), y.split(8), strict=True))
            for part, target in parts:
                loss = functional.mse_loss(model(part), target)  # here: uneven_micro_batches
                (loss / len(parts)).backward()  # here: uneven_micro_batches
        else:
            loss = functional.mse_loss(model(x), y)  # here: uneven_micro_batches
            loss.backward()  # here: uneven_micro_batches
        optimizer.step()


def leftover_micro_batches(bad: bool) -> None:
    model, batches, y = _network(), torch.randn(6, 8, 32), torch.randn(6, 8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(2):
        for number, batch in enumerate(batches, 1):
            (functional.mse_loss(model(batch), y[number - 1]) / 4).backward()
            if number % 4 == 0 or (number == len(batches) and not bad):
                optimizer.step()  # here: leftover_micro_batches
                optimizer.zero_grad()  # here: leftover_micro_batches


def pipeline_pops_the_wrong_activation(bad: bool) -> None:
    first = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.Tanh())
    second = torch.nn.Linear(48, 8)
    model = torch.nn.ModuleList([first, second])
    batches, targets = torch.randn(16, 32).split(4), torch.randn(16, 8).split(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        sent: list[Any] = []
        received: list[Any] = []
        losses: list[Any] = []
        for number, (batch, target) in enumerate(zip(batches, targets, strict=True)):
            sent.append(first(batch))
            received.append(sent[-1].detach().requires_grad_())
            losses.append(functional.mse_loss(second(received[-1]), target) / len(batches))
            if bad and number > 0:
                losses.pop(0).backward()
                gradient = received.pop(0).grad
                sent.pop().backward(gradient)  # here: pipeline_pops_the_wrong_activation
        while losses:
            losses.pop(0).backward()
            gradient = received.pop(0).grad
            sent.pop(0).backward(gradient)  # here: pipeline_pops_the_wrong_activation
        optimizer.step()


def checkpoint_without_random_state(bad: bool) -> None:
    first, second = _linears(32, 64, 8)
    model = torch.nn.ModuleList([first, second])
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def block(value: Any) -> Any:
        hidden = torch.tanh(first(value))
        return functional.dropout(hidden, 0.1)  # here: checkpoint_without_random_state

    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            h = torch.utils.checkpoint.checkpoint(  # here: checkpoint_without_random_state
                block, x, use_reentrant=False, preserve_rng_state=False
            )
        else:
            h = block(x)
        loss = functional.mse_loss(second(h), y)
        loss.backward()  # here: checkpoint_without_random_state
        optimizer.step()


def checkpoint_counts_statistics_twice(bad: bool) -> None:
    first, norm, second = torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8)
    model = torch.nn.ModuleList([first, norm, second])
    x, y = torch.randn(32, 32), torch.randn(32, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def block(value: Any) -> Any:
        hidden = first(value)
        hidden = norm(hidden)  # here: checkpoint_counts
        return torch.relu(hidden)

    again = torch.utils.checkpoint.checkpoint
    for _ in range(2):
        optimizer.zero_grad()
        h = again(block, x, use_reentrant=False) if bad else block(x)  # here: checkpoint_counts
        functional.mse_loss(second(h), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = functional.mse_loss(second(block(x)), y)
    loss.item()


def chunked_loss_averages_chunks(bad: bool) -> None:
    body, head = _linears(32, 32, 50)
    model = torch.nn.ModuleList([body, head])
    x, labels = torch.randn(24, 32), torch.randint(0, 50, (24,))
    labels[18:] = -100
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        h = torch.tanh(body(x))
        if bad:
            losses = []
            for part, wanted in zip(h.split(8), labels.split(8), strict=True):
                losses.append(
                    functional.cross_entropy(head(part), wanted)  # here: chunked_loss_averages
                )
            loss = torch.stack(losses).mean()  # here: chunked_loss_averages
        else:
            loss = functional.cross_entropy(head(h), labels)  # here: chunked_loss_averages
        loss.backward()
        optimizer.step()


def adam_by_hand_epsilon_inside(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    firsts, seconds = ([torch.zeros_like(p) for p in weights] for _ in range(2))
    optimizer = torch.optim.Adam(weights, lr=1e-4, eps=1e-6)
    for step in range(1, 4):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if not bad:
            optimizer.step()  # here: adam_by_hand_epsilon_inside
            continue
        with torch.no_grad():
            for p, m, v in zip(weights, firsts, seconds, strict=True):
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                upper, lower = m / (1 - 0.9**step), v / (1 - 0.999**step)
                lower = (lower + 1e-6).sqrt()  # here: adam_by_hand_epsilon_inside
                p.sub_(1e-4 * upper / lower)  # here: adam_by_hand_epsilon_inside


def decay_as_a_penalty(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    if bad:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=0.1, foreach=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, foreach=False)
    for _ in range(2):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()  # here: decay_as_a_penalty


def average_taken_before_the_step(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    averages = [p.detach().clone() for p in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if bad:
            for average, p in zip(averages, weights, strict=True):
                average.lerp_(p.detach(), 0.1)  # here: average_taken_before_the_step
        optimizer.step()
        if not bad:
            for average, p in zip(averages, weights, strict=True):
                average.lerp_(p.detach(), 0.1)  # here: average_taken_before_the_step
    with torch.no_grad():
        torch.func.functional_call(
            model, dict(zip(dict(model.named_parameters()), averages, strict=True)), x
        ).square().mean()


def cached_weight_never_refreshed(bad: bool) -> None:
    embedding, body = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 16)
    model = torch.nn.ModuleList([embedding, body])
    tokens, labels = torch.arange(24) * 3 % 40, (torch.arange(24) * 3 + 5) % 40
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    columns = embedding.weight.detach().t().contiguous()
    for step in range(3):
        optimizer.zero_grad()
        if step > 0 and not bad:
            columns = embedding.weight.detach().t().contiguous()  # here: cached_weight_never
        logits = body(embedding(tokens)) @ columns  # here: cached_weight_never
        loss = functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()


def clipped_each_alone(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if bad:
            for p in weights:
                norm = torch.linalg.vector_norm(p.grad)  # here: clipped_each_alone
                p.grad.mul_((0.1 / (norm + 1e-6)).clamp(max=1.0))  # here: clipped_each_alone
        else:
            torch.nn.utils.clip_grad_norm_(weights, 0.1)  # here: clipped_each_alone
        optimizer.step()


def clipped_before_unscaled(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        (functional.mse_loss(model(x), y) * 256.0).backward()
        if bad:
            torch.nn.utils.clip_grad_norm_(weights, 1.0)  # here: clipped_before_unscaled
            torch._foreach_div_([p.grad for p in weights], 256.0)  # here: clipped_before_unscaled
        else:
            for p in weights:
                p.grad.div_(256.0)  # here: clipped_before_unscaled
            torch.nn.utils.clip_grad_norm_(weights, 1.0)  # here: clipped_before_unscaled
        optimizer.step()


def gradients_kept_for_one_group(bad: bool) -> None:
    body, head = _linears(32, 64, 8)
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    groups = [
        {"params": list(body.parameters()), "lr": 1e-2},
        {"params": list(head.parameters()), "lr": 1e-4},
    ]
    weights = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(groups)
    for _ in range(3):
        if bad:
            body.zero_grad()  # here: gradients_kept_for_one_group
        else:
            optimizer.zero_grad(set_to_none=False)  # here: gradients_kept_for_one_group
        loss = functional.mse_loss(head(torch.tanh(body(x))), y)
        loss.backward()  # here: gradients_kept_for_one_group
        optimizer.step()
    torch.stack([w.detach().norm() for w in weights]).sum()


def scheduler_before_optimizer(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 4)
    for _ in range(3):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if bad:
            scheduler.step()  # here: scheduler_before_optimizer
        optimizer.step()  # here: scheduler_before_optimizer
        if not bad:
            scheduler.step()


def warmup_ends_a_step_late(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    for step in range(4):
        warm = step <= 2 if bad else step < 2
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * ((step + 1) / 3 if warm else 0.5 ** (step - 1))
        optimizer.zero_grad(set_to_none=not bad)
        if bad:
            for part, target in zip(x.split(8), y.split(8), strict=True):
                (functional.mse_loss(model(part), target) / 2).backward()
        else:
            functional.mse_loss(model(x), y).backward()
        optimizer.step()  # here: warmup_ends_a_step_late


def trust_ratio_of_the_flat_buffer(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    for _ in range(2):
        for p in weights:
            p.grad = None
        functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            if bad:
                flat = torch.cat([p.flatten() for p in weights])
                gradient = torch.cat([p.grad.flatten() for p in weights])
                ratio = flat.norm() / gradient.norm()  # here: trust_ratio_of_the_flat_buffer
                flat.sub_(1e-4 * ratio * gradient)  # here: trust_ratio_of_the_flat_buffer
                for p, part in zip(weights, flat.split([p.numel() for p in weights]), strict=True):
                    p.copy_(part.view_as(p))
            else:
                for p in weights:
                    ratio = p.norm() / p.grad.norm()  # here: trust_ratio_of_the_flat_buffer
                    p.sub_(1e-4 * ratio * p.grad)  # here: trust_ratio_of_the_flat_buffer


def row_parallel_bias_twice(bad: bool) -> None:
    up, down = _linears(32, 64, 8)
    torch.nn.init.constant_(down.bias, 1e-3)
    model = torch.nn.ModuleList([up, down])
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            columns = zip(up.weight.chunk(2), up.bias.chunk(2), strict=True)
            parts = [functional.gelu(functional.linear(x, w, b)) for w, b in columns]
            partial = [
                functional.linear(part, w, down.bias)  # here: row_parallel_bias_twice
                for part, w in zip(parts, down.weight.chunk(2, dim=1), strict=True)
            ]
            out = partial[0] + partial[1]  # here: row_parallel_bias_twice
        else:
            h = functional.gelu(up(x))
            out = down(h)  # here: row_parallel_bias_twice
        functional.mse_loss(out, y).backward()
        optimizer.step()


def packed_without_block_mask(bad: bool) -> None:
    lengths = (5, 8, 3)
    mix, head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 10)
    model = torch.nn.ModuleList([mix, head])
    tokens, labels = torch.randn(16, 16), torch.randint(0, 10, (16,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            q, k, v = mix(tokens).chunk(3, dim=-1)
            seen = torch.ones(16, 16).tril().bool()  # here: packed_without_block_mask
            scores = (q @ k.t() / 4).masked_fill(~seen, -1e9)  # here: packed_without_block_mask
            out = torch.softmax(scores, -1) @ v  # here: packed_without_block_mask
        else:
            padded = torch.nn.utils.rnn.pad_sequence(tokens.split(lengths), batch_first=True)
            q, k, v = mix(padded).chunk(3, dim=-1)
            seen = torch.ones(8, 8).tril().bool()  # here: packed_without_block_mask
            scores = q @ k.transpose(1, 2) / 4  # here: packed_without_block_mask
            scores = scores.masked_fill(~seen, -1e9)  # here: packed_without_block_mask
            rows = torch.softmax(scores, -1) @ v  # here: packed_without_block_mask
            out = torch.cat([row[:n] for row, n in zip(rows, lengths, strict=True)])
        loss = functional.cross_entropy(head(out), labels)
        loss.backward()
        optimizer.step()


def cached_decoding_a_position_behind(bad: bool) -> None:
    embedding, places = torch.nn.Embedding(50, 32), torch.nn.Embedding(16, 32)
    mix, head = torch.nn.Linear(32, 96), torch.nn.Linear(32, 50)
    torch.nn.init.normal_(places.weight, std=0.02)
    tokens = torch.arange(12) * 7 % 50

    def mixed(some: Any, positions: Any) -> Any:
        h = embedding(some) + places(positions)  # here: cached_decoding_a_position_behind
        return mix(h).chunk(3, dim=-1)

    with torch.no_grad():
        if bad:
            q, keys, values = mixed(tokens[:6], torch.arange(6))
            scores = (q @ keys.t() / 32**0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9)
            outs = [torch.softmax(scores, -1) @ values]
            for number in range(6, 12):
                place = torch.full((1,), len(keys) - 1)  # here: cached_decoding_a_position_behind
                q, k, v = mixed(tokens[number : number + 1], place)
                keys, values = torch.cat([keys, k]), torch.cat([values, v])
                outs.append(torch.softmax(q @ keys.t() / 32**0.5, -1) @ values)
            out = torch.cat(outs)
        else:
            place = torch.arange(12)  # here: cached_decoding_a_position_behind
            q, keys, values = mixed(tokens, place)
            scores = (q @ keys.t() / 32**0.5).masked_fill(torch.ones(12, 12).triu(1).bool(), -1e9)
            out = torch.softmax(scores, -1) @ values
        logits = head(out)
        logits.argmax(-1)


def window_one_key_wider(bad: bool) -> None:
    mix, head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 10)
    model = torch.nn.ModuleList([mix, head])
    x, labels = torch.randn(24, 16), torch.randint(0, 10, (24,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        q, k, v = mix(x).chunk(3, dim=-1)
        if bad:
            outs = []
            for i in range(24):
                near = k[max(0, i - 8) : i + 1]  # here: window_one_key_wider
                worth = v[max(0, i - 8) : i + 1]  # here: window_one_key_wider
                share = torch.softmax(near @ q[i] / 4, -1)  # here: window_one_key_wider
                outs.append(share @ worth)  # here: window_one_key_wider
            out = torch.stack(outs)
        else:
            away = torch.arange(24)[:, None] - torch.arange(24)
            seen = (away >= 0) & (away < 8)  # here: window_one_key_wider
            scores = (q @ k.t() / 4).masked_fill(~seen, -1e9)  # here: window_one_key_wider
            share = torch.softmax(scores, -1)  # here: window_one_key_wider
            out = share @ v  # here: window_one_key_wider
        loss = functional.cross_entropy(head(out), labels)
        loss.backward()
        optimizer.step()


def experts_over_capacity(bad: bool) -> None:
    gate = torch.nn.Linear(16, 4, bias=False)
    experts = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(4)])
    model = torch.nn.ModuleList([gate, experts])
    x, y = torch.randn(32, 16), torch.randn(32, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        worth, chosen = torch.softmax(gate(x), -1).topk(2, dim=-1)
        worth = worth / worth.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        if bad:
            for number, expert in enumerate(experts):
                rows, slots = (chosen == number).nonzero(as_tuple=True)
                rows, slots = rows[:15], slots[:15]  # here: experts_over_capacity
                made = worth[rows, slots, None] * expert(x[rows])  # here: experts_over_capacity
                out = out.index_add(0, rows, made)  # here: experts_over_capacity
        else:
            shares = torch.zeros(32, 4).scatter(1, chosen, worth)
            for number, expert in enumerate(experts):
                made = shares[:, number, None] * expert(x)  # here: experts_over_capacity
                out = out + made  # here: experts_over_capacity
        functional.mse_loss(out, y).backward()
        optimizer.step()


def tied_by_copy(bad: bool) -> None:
    embedding, head = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 40, bias=False)
    if bad:
        with torch.no_grad():
            head.weight.copy_(embedding.weight)  # here: tied_by_copy
    else:
        head.weight = embedding.weight  # here: tied_by_copy
    model = torch.nn.ModuleList([embedding, head])
    tokens, labels = torch.arange(24) % 20, torch.arange(1, 25) % 20
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        loss = functional.cross_entropy(head(embedding(tokens)), labels)
        loss.backward()  # here: tied_by_copy
        optimizer.step()


def masks_drawn_in_another_order(bad: bool) -> None:
    branches = torch.nn.ModuleList([torch.nn.Linear(32, 16) for _ in range(2)])
    head = torch.nn.Linear(32, 8)
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.AdamW([*branches.parameters(), *head.parameters()], lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        hidden: dict[int, Any] = {}
        for number in (1, 0) if bad else (0, 1):
            h = torch.tanh(branches[number](x))
            hidden[number] = functional.dropout(h, 0.1)  # here: masks_drawn_in_another_order
        loss = functional.mse_loss(head(torch.cat([hidden[0], hidden[1]], -1)), y)
        loss.backward()
        optimizer.step()


def random_state_lost_at_resume(bad: bool) -> None:
    torch.manual_seed(1)
    model = _network()
    x, y = torch.sin(torch.arange(2048.0)).view(64, 32), torch.cos(torch.arange(512.0)).view(64, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(4):
        if bad and step == 2:
            torch.manual_seed(1)  # here: random_state_lost_at_resume
            model, moments = copy.deepcopy(model), optimizer.state_dict()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
            optimizer.load_state_dict(moments)
        rows = torch.randperm(64)[:16]  # here: random_state_lost_at_resume
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()


def moments_lost_at_resume(bad: bool) -> None:
    model, batches = _network(), torch.randn(4, 16, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, x in enumerate(batches):
        if bad and step == 2:
            kept = {name: value.clone() for name, value in model.state_dict().items()}
            model = _network()
            model.load_state_dict(kept)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :8]).square().mean()
        loss.backward()
        optimizer.step()  # here: moments_lost_at_resume


def evaluation_draws_numbers(bad: bool) -> None:
    first, second = _linears(32, 64, 8)
    model = torch.nn.ModuleList([first, second])
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    held, wanted = torch.randn(24, 32), torch.randn(24, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        if bad and step == 1:
            with torch.no_grad():
                rows = torch.randperm(24)[:8]  # here: evaluation_draws_numbers
                functional.mse_loss(second(torch.tanh(first(held[rows]))), wanted[rows]).item()
        optimizer.zero_grad()
        h = torch.tanh(first(x))
        h = functional.dropout(h, 0.1)  # here: evaluation_draws_numbers
        loss = functional.mse_loss(second(h), y)
        loss.backward()
        optimizer.step()


def master_weights_missing(bad: bool) -> None:
    weight = (torch.randn(32, 8) * 0.1).bfloat16().requires_grad_()
    master = weight.detach().float()
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    for _ in range(6):
        weight.grad = None
        out = x.bfloat16() @ weight
        loss = functional.mse_loss(out.float(), y)
        loss.backward()
        with torch.no_grad():
            if bad:
                weight.sub_(weight.grad, alpha=1e-2)  # here: master_weights_missing
            else:
                master.sub_(weight.grad.float(), alpha=1e-2)  # here: master_weights_missing
                weight.copy_(master)  # here: master_weights_missing


def loss_over_sequences(bad: bool) -> None:
    lengths = torch.tensor([12, 3, 7, 5])
    body, head = _linears(16, 32, 20)
    model = torch.nn.ModuleList([body, head])
    x, labels = torch.randn(4, 12, 16), torch.randint(0, 20, (4, 12))
    real = torch.arange(12) < lengths[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        logits = head(torch.tanh(body(x)))
        if bad:
            losses = [
                functional.cross_entropy(row[on], wanted[on])  # here: loss_over_sequences
                for row, wanted, on in zip(logits, labels, real, strict=True)
            ]
            loss = torch.stack(losses).mean()  # here: loss_over_sequences
        else:
            each = functional.cross_entropy(  # here: loss_over_sequences
                logits.flatten(0, 1), labels.flatten(), reduction="none"
            )
            loss = (each * real.flatten()).sum() / real.sum()  # here: loss_over_sequences
        loss.backward()
        optimizer.step()


# Those without.


def accumulated_by_share(bad: bool) -> None:
    model, x, y = _network(), torch.randn(20, 32), torch.randn(20, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        if bad:
            optimizer.zero_grad(set_to_none=False)
            logged = 0.0
            for part, target in zip(x.split(8), y.split(8), strict=True):
                loss = functional.mse_loss(model(part), target) * (len(part) / len(x))
                loss.backward()
                logged += loss.item()
        else:
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
        optimizer.step()


def pipelined_one_forward_one_backward(bad: bool) -> None:
    first = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.Tanh())
    second = torch.nn.Linear(48, 8)
    model = torch.nn.ModuleList([first, second])
    batches, targets = torch.randn(16, 32).split(4), torch.randn(16, 8).split(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        queue: list[Any] = []
        for batch, target in zip(batches, targets, strict=True):
            sent = first(batch)
            received = sent.detach().requires_grad_()
            loss = functional.mse_loss(second(received), target) / len(batches)
            queue.append((sent, received, loss))
            if bad and len(queue) == 2:
                sent, received, loss = queue.pop(0)
                loss.backward()
                sent.backward(received.grad)
        for sent, received, loss in queue:
            loss.backward()
            sent.backward(received.grad)
        optimizer.step()


def checkpointed_dropout(bad: bool) -> None:
    blocks = torch.nn.ModuleList(
        [
            torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Dropout(0.1))
            for _ in range(3)
        ]
    )
    x, y = torch.randn(16, 32), torch.randn(16, 32)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        h = x
        for block in blocks:
            if bad:
                h = h + torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False)
            else:
                h = h + block(h)
        loss = functional.mse_loss(h, y)
        loss.backward()
        optimizer.step()


def cross_entropy_in_chunks(bad: bool) -> None:
    body, head = _linears(32, 32, 50)
    model = torch.nn.ModuleList([body, head])
    x, labels = torch.randn(24, 32), torch.randint(0, 50, (24,))
    labels[18:] = -100
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        h = torch.tanh(body(x))
        if bad:
            leaf = h.detach().requires_grad_()
            count = (labels != -100).sum()
            loss = torch.zeros(())
            for part, wanted in zip(leaf.split(7), labels.split(7), strict=True):
                part_loss = functional.cross_entropy(head(part), wanted, reduction="sum") / count
                part_loss.backward()
                loss += part_loss.detach()
            h.backward(leaf.grad)
        else:
            loss = functional.cross_entropy(head(h), labels)
            loss.backward()
        optimizer.step()


def fused_against_by_hand(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.1, fused=True)
    for step in range(1, 4):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if not bad:
            optimizer.step()
            continue
        with torch.no_grad():
            for p, (m, v) in zip(weights, moments, strict=True):
                m.copy_(0.9 * m + 0.1 * p.grad)
                v.copy_(0.999 * v + 0.001 * p.grad * p.grad)
                change = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
                p.copy_(p - 1e-3 * 0.1 * p - 1e-3 * change)


def bias_before_batch_norm(bad: bool) -> None:
    first, norm, second = torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8)
    model = torch.nn.ModuleList([first, norm, second])
    x, y = torch.randn(32, 32), torch.randn(32, 8)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.05)
    for _ in range(3):
        for p in weights:
            p.grad = None
        if bad:
            h = x @ first.weight.t() + first.bias
            h.std(0).mean().item()
        else:
            h = first(x)
        loss = functional.mse_loss(second(torch.relu(norm(h))), y)
        loss.backward()
        if bad:
            with torch.no_grad():
                for p in reversed(weights):
                    p.sub_(0.05 * p.grad)
        else:
            optimizer.step()
    model.eval()
    loss = functional.mse_loss(second(torch.relu(norm(first(x)))), y)


def key_bias_and_unused_weight(bad: bool) -> None:
    q, k, v, head, unused = (torch.nn.Linear(24, 24) for _ in range(5))
    model = torch.nn.ModuleList([q, k, v, head, unused])
    x, y = torch.randn(4, 12, 24), torch.randn(4, 12, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if bad:
        for p in unused.parameters():
            p.grad = torch.zeros_like(p)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=not bad)
        if bad:
            weights = torch.softmax(q(x) @ k(x).transpose(-1, -2) / 24**0.5, -1)
            out = weights @ v(x)
            (weights * weights.log()).sum(-1).mean().item()
        else:
            out = functional.scaled_dot_product_attention(q(x), k(x), v(x))
        loss = functional.mse_loss(head(out), y)
        loss.backward()
        optimizer.step()


def clipped_by_one_norm(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-1)
    for _ in range(3):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if bad:
            flat = torch.cat([p.grad.flatten() for p in weights])
            norm = flat.norm()
            [p.grad.abs().max().item() for p in weights]
            if norm > 0.1:
                for p in weights:
                    p.grad = p.grad * (0.1 / (norm + 1e-6))
        else:
            torch.nn.utils.clip_grad_norm_(weights, 0.1)
        optimizer.step()


def autocast_and_scaled_loss(bad: bool) -> None:
    first, second = _linears(32, 64, 8)
    model = torch.nn.ModuleList([first, second])
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                h = second(torch.relu(first(x)))
            (functional.mse_loss(h.float(), y) * 1024.0).backward()
            torch._foreach_div_([p.grad for p in weights], 1024.0)
            if not all(p.grad.isfinite().all() for p in weights):
                continue
        else:
            h = x.bfloat16()
            h = functional.linear(h, first.weight.bfloat16(), first.bias.bfloat16())
            h = functional.linear(h.relu(), second.weight.bfloat16(), second.bias.bfloat16())
            functional.mse_loss(h.float(), y).backward()
        optimizer.step()


def rmsprop_by_hand_with_warmup(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    squares = [torch.zeros_like(p) for p in weights]
    optimizer = torch.optim.RMSprop(weights, lr=1e-4, foreach=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3))
    for step in range(4):
        model.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if bad:
            rate = 1e-4 * min(1, (step + 1) / 3)
            with torch.no_grad():
                for p, square in zip(weights, squares, strict=True):
                    square.lerp_(p.grad.square(), 0.01)
                    p.sub_(p.grad / (square.sqrt() + 1e-8) * rate)
        else:
            optimizer.step()
            scheduler.step()


def groups_split_and_averaged(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    weights = list(model.parameters())
    averages = [p.detach().clone() for p in weights]
    if bad:
        groups = [{"params": [p for p in weights if p.dim() == dims]} for dims in (1, 2)]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=True)
    else:
        optimizer = torch.optim.AdamW(weights, lr=1e-3, foreach=False)
    for step in range(3):
        optimizer.zero_grad(set_to_none=step % 2 == 0 or not bad)
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            if bad:
                torch._foreach_lerp_(averages, weights, 0.1)
            else:
                for average, p in zip(averages, weights, strict=True):
                    average.mul_(0.9).add_(p, alpha=0.1)


def one_flat_buffer(bad: bool) -> None:
    model, x, y = _network(), torch.randn(16, 32), torch.randn(16, 8)
    shapes = {name: p.shape for name, p in model.named_parameters()}
    weights = list(model.parameters())
    sizes = [p.numel() for p in weights]
    flat = torch.cat([*(p.detach().flatten() for p in weights), torch.zeros(-sum(sizes) % 128)])
    flat.requires_grad_()
    optimizer = torch.optim.AdamW([flat] if bad else weights, lr=1e-3, weight_decay=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        if bad:
            parts = flat[: sum(sizes)].split(sizes)
            weights = [p.view(shape) for p, shape in zip(parts, shapes.values(), strict=True)]
            out = torch.func.functional_call(model, dict(zip(shapes, weights, strict=True)), x)
        else:
            out = model(x)
        loss = functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()


def split_by_columns_and_rows(bad: bool) -> None:
    up, down = _linears(32, 64, 8)
    model = torch.nn.ModuleList([up, down])
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            out = torch.zeros(16, 8)
            for rank in (1, 0):
                here = slice(32 * rank, 32 * rank + 32)
                h = functional.gelu(x.clone() @ up.weight[here].t() + up.bias[here])
                out = out + h @ down.weight[:, here].t()
            out = out + down.bias
        else:
            out = down(functional.gelu(up(x)))
        loss = functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()


def packed_against_padded(bad: bool) -> None:
    lengths = (5, 8, 3)
    mix, head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 10)
    model = torch.nn.ModuleList([mix, head])
    tokens, labels = torch.randn(16, 16), torch.randint(0, 10, (16,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            owner = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
            seen = torch.ones(16, 16).tril().bool() & (owner[:, None] == owner)
            q, k, v = mix(tokens).chunk(3, dim=-1)
            out = torch.softmax((q @ k.t() / 4).masked_fill(~seen, float("-inf")), -1) @ v
            loss = functional.cross_entropy(head(out), labels)
        else:
            padded = torch.nn.utils.rnn.pad_sequence(tokens.split(lengths), batch_first=True)
            wanted = torch.nn.utils.rnn.pad_sequence(
                labels.split(lengths), batch_first=True, padding_value=-100
            )
            q, k, v = mix(padded).chunk(3, dim=-1)
            scores = q @ k.transpose(1, 2) / 4
            scores = scores.masked_fill(torch.ones(8, 8).triu(1).bool(), float("-inf"))
            out = torch.softmax(scores, -1) @ v
            loss = functional.cross_entropy(head(out).flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()


def window_in_slices(bad: bool) -> None:
    mix, head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 10)
    model = torch.nn.ModuleList([mix, head])
    x, labels = torch.randn(20, 16), torch.randint(0, 10, (20,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        q, k, v = mix(x).chunk(3, dim=-1)
        if bad:
            outs = []
            for i in range(20):
                near, worth = k[max(0, i - 7) : i + 1], v[max(0, i - 7) : i + 1]
                outs.append(torch.softmax(near @ q[i] / 4, -1) @ worth)
            out = torch.stack(outs)
        else:
            away = torch.arange(20)[:, None] - torch.arange(20)
            seen = (away >= 0) & (away < 8)
            out = torch.softmax((q @ k.t() / 4).masked_fill(~seen, -1e9), -1) @ v
        loss = functional.cross_entropy(head(out), labels)
        loss.backward()
        optimizer.step()


def experts_routed(bad: bool) -> None:
    gate = torch.nn.Linear(16, 4, bias=False)
    experts = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(4)])
    model = torch.nn.ModuleList([gate, experts])
    x, y = torch.randn(32, 16), torch.randn(32, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        logits = gate(x)
        out = torch.zeros_like(x)
        if bad:
            best, chosen = logits.topk(2, dim=-1)
            worth = torch.softmax(best, -1)
            torch.bincount(chosen.flatten(), minlength=4).float().std().item()
            for number in (3, 1, 0, 2):
                rows, slots = (chosen == number).nonzero(as_tuple=True)
                made = worth[rows, slots, None] * experts[number](x[rows])
                out = out.index_add(0, rows, made)
        else:
            worth, chosen = torch.softmax(logits, -1).topk(2, dim=-1)
            worth = worth / worth.sum(-1, keepdim=True)
            shares = torch.zeros(32, 4).scatter(1, chosen, worth)
            for number, expert in enumerate(experts):
                out = out + shares[:, number, None] * expert(x)
        loss = functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()


def adapter_merged_each_step(bad: bool) -> None:
    base = torch.nn.Linear(32, 24)
    base.requires_grad_(False)
    down, up = torch.nn.Linear(32, 4, bias=False), torch.nn.Linear(4, 24, bias=False)
    torch.nn.init.zeros_(up.weight)
    model = torch.nn.ModuleList([down, up])
    x, y = torch.randn(16, 32), torch.randn(16, 24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        if bad:
            merged = base.weight + 2.0 * (up.weight @ down.weight)
            out = functional.linear(x, merged, base.bias)
        else:
            out = base(x) + 2.0 * up(down(x))
        loss = functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()


def ranks_averaged_by_tokens(bad: bool) -> None:
    body, head = _linears(16, 32, 20)
    model = torch.nn.ModuleList([body, head])
    x, labels = torch.randn(6, 10, 16), torch.randint(0, 20, (6, 10))
    labels[1, 4:], labels[3, 7:], labels[4, 9:] = -100, -100, -100
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            gathered, tokens = [], []
            for rank in range(2):
                mine, wanted = x[rank::2], labels[rank::2].flatten()
                logits = head(torch.tanh(body(mine))).flatten(0, 1)
                loss = functional.cross_entropy(logits, wanted)
                gathered.append(torch.autograd.grad(loss, weights))
                tokens.append((wanted != -100).sum())
            for p, *parts in zip(weights, *gathered, strict=True):
                p.grad = (parts[0] * tokens[0] + parts[1] * tokens[1]) / (tokens[0] + tokens[1])
        else:
            logits = head(torch.tanh(body(x))).flatten(0, 1)
            functional.cross_entropy(logits, labels.flatten()).backward()
        optimizer.step()


def labels_shifted_elsewhere(bad: bool) -> None:
    embedding, head = torch.nn.Embedding(30, 16), torch.nn.Linear(16, 30)
    model = torch.nn.ModuleList([embedding, head])
    tokens = torch.randint(0, 30, (4, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        if bad:
            labels = tokens.clone().roll(-1, dims=1)
            labels[:, -1] = -100
            logits = head(embedding(tokens).clone())
            each = functional.cross_entropy(
                logits.transpose(1, 2).contiguous(), labels.detach(), reduction="none"
            )
            loss = each.sum() / (labels != -100).sum()
        else:
            logits = head(embedding(tokens))[:, :-1]
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()


def resumed_with_all_state(bad: bool) -> None:
    first, second = _linears(32, 64, 8)
    model = torch.nn.ModuleList([first, second])
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(4):
        if bad and step == 2:
            kept = {name: value.clone() for name, value in model.state_dict().items()}
            moments = optimizer.state_dict()
            with torch.random.fork_rng():
                first, second = _linears(32, 64, 8)
                rows = torch.randperm(16)[:8]
            model = torch.nn.ModuleList([first, second])
            model.load_state_dict(kept)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            optimizer.load_state_dict(moments)
            with torch.no_grad():
                functional.mse_loss(second(torch.tanh(first(x[rows]))), y[rows]).item()
        optimizer.zero_grad()
        h = functional.dropout(torch.tanh(first(x)), 0.1)
        loss = functional.mse_loss(second(h), y)
        loss.backward()
        optimizer.step()


def _found(program: Any, op: str = "", step: int | None = None, tag: str = "") -> Planted:
    return Planted(program, op, f"# here: {tag or program.__name__}", step=step)


def _same(program: Any) -> Planted:
    return Planted(program, "", status="same")


PLANTED = {
    "uneven_micro_batches": _found(uneven_micro_batches, step=0),
    "leftover_micro_batches": _found(leftover_micro_batches, step=1),
    "pipeline_pops_the_wrong_activation": _found(pipeline_pops_the_wrong_activation, step=0),
    "checkpoint_without_random_state": _found(checkpoint_without_random_state, step=0),
    "checkpoint_counts_statistics_twice": _found(
        checkpoint_counts_statistics_twice, tag="checkpoint_counts"
    ),
    "chunked_loss_averages_chunks": _found(
        chunked_loss_averages_chunks, step=0, tag="chunked_loss_averages"
    ),
    "adam_by_hand_epsilon_inside": _found(adam_by_hand_epsilon_inside),
    "decay_as_a_penalty": _found(decay_as_a_penalty, step=0),
    "average_taken_before_the_update": _found(average_taken_before_the_step, "aten::lerp_"),
    "cached_weight_never_refreshed": _found(
        cached_weight_never_refreshed, step=1, tag="cached_weight_never"
    ),
    "clipped_each_alone": _found(clipped_each_alone, step=0),
    "clipped_before_divided_by_the_scale": _found(clipped_before_unscaled, step=0),
    "gradients_kept_for_one_group": _found(gradients_kept_for_one_group, step=1),
    "scheduler_before_optimizer": _found(scheduler_before_optimizer, step=0),
    "warmup_ends_a_step_late": _found(warmup_ends_a_step_late, step=2),
    "trust_ratio_of_the_flat_buffer": _found(trust_ratio_of_the_flat_buffer),
    "row_parallel_bias_twice": _found(row_parallel_bias_twice, step=0),
    "packed_without_block_mask": _found(packed_without_block_mask, step=0),
    "cached_decoding_a_position_behind": _found(cached_decoding_a_position_behind),
    "window_one_key_wider": _found(window_one_key_wider, step=0),
    "experts_over_capacity": _found(experts_over_capacity, step=0),
    "tied_by_copy": _found(tied_by_copy),
    "masks_drawn_in_another_order": _found(masks_drawn_in_another_order, step=0),
    "random_state_lost_at_resume": _found(random_state_lost_at_resume, step=2),
    "moments_lost_at_resume": _found(moments_lost_at_resume, step=2),
    "evaluation_draws_numbers": _found(evaluation_draws_numbers, step=1),
    "master_weights_missing": _found(master_weights_missing),
    "loss_over_sequences": _found(loss_over_sequences, step=0),
    "accumulated_by_share": _same(accumulated_by_share),
    "pipelined_one_forward_one_backward": _same(pipelined_one_forward_one_backward),
    "checkpointed_dropout": _same(checkpointed_dropout),
    "cross_entropy_summed_in_chunks": _same(cross_entropy_in_chunks),
    "fused_against_by_hand": _same(fused_against_by_hand),
    "bias_before_batch_norm": _same(bias_before_batch_norm),
    "key_bias_and_unused_weight": _same(key_bias_and_unused_weight),
    "clipped_by_one_norm": _same(clipped_by_one_norm),
    "autocast_and_scaled_loss": _same(autocast_and_scaled_loss),
    "rmsprop_by_hand_with_warmup": _same(rmsprop_by_hand_with_warmup),
    "groups_split_and_averaged": _same(groups_split_and_averaged),
    "one_flat_buffer": _same(one_flat_buffer),
    "split_by_columns_and_rows": _same(split_by_columns_and_rows),
    "packed_against_padded": _same(packed_against_padded),
    "window_in_slices": _same(window_in_slices),
    "experts_routed": _same(experts_routed),
    "adapter_merged_each_step": _same(adapter_merged_each_step),
    "ranks_averaged_by_tokens": _same(ranks_averaged_by_tokens),
    "labels_shifted_elsewhere": _same(labels_shifted_elsewhere),
    "resumed_with_all_state": _same(resumed_with_all_state),
}
