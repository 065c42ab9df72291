"""Planted divergences whose truth was written down before anybody had looked at them: twelve of
whole training loops, and seven where another precision of the good side is requested.
"""

import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _network(wide: int = 32) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(wide, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)
    )


def _adam(*models: Any) -> Any:
    held = [parameter for model in models for parameter in model.parameters()]
    return torch.optim.AdamW(held, lr=1e-2)


def _stepped(optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# -- faults ----------------------------------------------------------------------------------------


def one_loss_term_summed(bad: bool) -> None:
    model, functional = _network(), torch.nn.functional
    optimizer = _adam(model)
    for _ in range(3):
        out = model(torch.randn(16, 32))
        main = functional.cross_entropy(out, torch.randint(0, 8, (16,)))
        how = "sum" if bad else "mean"
        other = functional.mse_loss(out, torch.zeros(16, 8), reduction=how)  # here
        _stepped(optimizer, main + 0.01 * other)


def teacher_detached(bad: bool) -> None:
    student, teacher = _network(), _network()
    optimizer = _adam(student, teacher)
    for _ in range(3):
        x = torch.randn(16, 32)
        soft = torch.softmax(teacher(x), -1)  # here
        if bad:
            soft = soft.detach()  # here
        _stepped(optimizer, (torch.softmax(student(x), -1) - soft).square().mean())  # here


def head_no_longer_tied(bad: bool) -> None:
    embed, body = torch.nn.Embedding(20, 32), torch.nn.Linear(32, 32)
    head = torch.nn.Linear(32, 20, bias=False)
    head.weight = embed.weight
    if bad:
        head.weight = torch.nn.Parameter(embed.weight.detach().clone())  # here
    optimizer = _adam(torch.nn.ModuleList([embed, body, head]))
    for _ in range(3):
        tokens = torch.randint(0, 20, (8, 6))
        h = torch.tanh(body(embed(tokens)))  # here
        logits = head(h)  # here
        _stepped(
            optimizer,
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
        )


def average_taken_before_the_step(bad: bool) -> None:
    model = _network()
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def average() -> None:
        with torch.no_grad():
            for mean, parameter in zip(kept, model.parameters(), strict=True):
                mean.lerp_(parameter, 0.1)  # here

    for _ in range(3):
        loss = model(torch.randn(16, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if bad:
            average()
        optimizer.step()
        if not bad:
            average()


def dropout_of_a_frozen_branch(bad: bool) -> None:
    frozen = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(0.2))
    trained = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(0.2))
    frozen.requires_grad_(False)
    frozen.train(bad)
    optimizer = _adam(trained)
    for _ in range(3):
        x = torch.randn(16, 32)
        y = frozen(x)  # here
        _stepped(optimizer, (trained(x) - y).square().mean())


def clipped_before_it_is_unscaled(bad: bool) -> None:
    model, scale = _network(), 1024.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def unscale() -> None:
        for parameter in model.parameters():
            parameter.grad.mul_(1 / scale)  # here

    for _ in range(3):
        loss = model(torch.randn(16, 32)).square().mean()
        optimizer.zero_grad()
        (loss * scale).backward()
        if not bad:
            unscale()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # here
        if bad:
            unscale()
        optimizer.step()


# -- the same in other words -----------------------------------------------------------------------


def einsum_for_matmul(bad: bool) -> None:
    project = torch.nn.Linear(32, 96)
    optimizer = _adam(project)
    for _ in range(3):
        x = torch.randn(2, 16, 32)
        q, k, v = project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if bad:
            weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) / 8**0.5, -1)
            y = torch.einsum("bhqk,bhkd->bqhd", weights, v)
        else:
            weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
            y = (weights @ v).transpose(1, 2)
        _stepped(optimizer, (y.flatten(2) - x).square().mean())


def picked_for_cross_entropy(bad: bool) -> None:
    model = _network()
    optimizer = _adam(model)
    for _ in range(3):
        logits, labels = model(torch.randn(16, 32)), torch.randint(0, 8, (16,))
        if bad:
            loss = -logits.log_softmax(-1).gather(1, labels[:, None]).mean()
        else:
            loss = torch.nn.functional.cross_entropy(logits, labels)
        _stepped(optimizer, loss)


def product_and_bias_for_linear(bad: bool) -> None:
    first, second = torch.nn.Linear(32, 48), torch.nn.Linear(48, 8)
    optimizer = _adam(first, second)

    def layer(module: Any, x: Any) -> Any:
        return x @ module.weight.t() + module.bias if bad else module(x)

    for _ in range(3):
        h = torch.nn.functional.gelu(layer(first, torch.randn(4, 6, 32)))
        _stepped(optimizer, layer(second, h).square().mean())


def causal_attention_by_hand(bad: bool) -> None:
    project, out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
    optimizer = _adam(project, out)
    for _ in range(3):
        x = torch.randn(2, 16, 32)
        q, k, v = project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if bad:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            hidden = torch.ones(16, 16, dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(hidden, float("-inf"))
            y = torch.softmax(scores, -1) @ v
        _stepped(optimizer, (out(y.transpose(1, 2).flatten(2)) - x).square().mean())


def one_hot_for_embedding(bad: bool) -> None:
    embed, head = torch.nn.Embedding(20, 32), torch.nn.Linear(32, 20)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.5)
    for _ in range(3):
        tokens = torch.randint(0, 20, (8, 6))
        hot = torch.nn.functional.one_hot(tokens, 20).float()
        h = hot @ embed.weight if bad else embed(tokens)
        logits = head(torch.tanh(h)).flatten(0, 1)
        _stepped(optimizer, torch.nn.functional.cross_entropy(logits, tokens.flatten()))


def copied_and_viewed_for_reshape(bad: bool) -> None:
    convolve, head = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8 * 64, 10)
    optimizer = _adam(convolve, head)
    for _ in range(3):
        h = torch.relu(convolve(torch.randn(4, 3, 8, 8))).permute(0, 2, 3, 1)
        h = h.contiguous().view(4, -1) if bad else h.reshape(4, 8 * 64)
        _stepped(optimizer, head(h).square().mean())


# -- another precision is requested ----------------------------------------------------------------


def _low(module: Any, x: Any) -> Any:
    weight, bias = module.weight.bfloat16(), module.bias.bfloat16()
    return torch.nn.functional.linear(x.bfloat16(), weight, bias).float()


def requested_of_one_layer(_bad: bool) -> None:
    model = _network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        h = torch.relu(model[0](torch.randn(16, 32)))
        out = model[4](torch.relu(_low(model[2], h)))
        _stepped(optimizer, torch.nn.functional.cross_entropy(out, torch.randint(0, 8, (16,))))


def requested_of_autocast(_bad: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    optimizer = _adam(layer)
    for _ in range(4):
        x = torch.randn(4, 16, 32)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = layer(x)
        _stepped(optimizer, (y.float() - x).square().mean())


def requested_of_all_weights(_bad: bool) -> None:
    model = _network().bfloat16()
    optimizer = _adam(model)
    for _ in range(5):
        out = model(torch.randn(16, 32, dtype=torch.bfloat16)).float()
        _stepped(optimizer, torch.nn.functional.cross_entropy(out, torch.randint(0, 8, (16,))))


def requested_of_single_precision(_bad: bool) -> None:
    nn = torch.nn
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(8 * 16, 10)),
    )
    optimizer = _adam(model)
    for _ in range(4):
        out = model(torch.randn(8, 3, 8, 8))
        _stepped(optimizer, nn.functional.cross_entropy(out, torch.randint(0, 10, (8,))))


def requested_and_scaled_at_step_two(bad: bool) -> None:
    model = _network().bfloat16()
    optimizer = _adam(model)
    for step in range(4):
        h = model[1](model[0](torch.randn(16, 32, dtype=torch.bfloat16)))
        h = h * (1.5 if bad and step == 2 else 1.0)  # here
        out = model[4](model[3](model[2](h))).float()
        _stepped(optimizer, torch.nn.functional.cross_entropy(out, torch.randint(0, 8, (16,))))


def requested_and_over_the_wrong_axis(bad: bool) -> None:
    project, out = torch.nn.Linear(32, 96).bfloat16(), torch.nn.Linear(32, 32).bfloat16()
    optimizer = _adam(project, out)
    for _ in range(2):
        x = torch.randn(2, 16, 32, dtype=torch.bfloat16)
        q, k, v = project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -2 if bad else -1)  # here
        y = out((weights @ v).transpose(1, 2).flatten(2))
        _stepped(optimizer, (y - x).float().square().mean())


def requested_where_half_overflows(_bad: bool) -> None:
    x = torch.randn(8, 64) * 400
    h = x.half()
    squares = h * h  # here
    torch.tanh(squares.float().mean(-1) / 1e5).sum()


def _same(program: Any, dtype: str = "") -> Planted:
    return Planted(program, "", status="same", dtype=dtype)


PLANTED = {
    "one_loss_term_summed": Planted(one_loss_term_summed, "aten::mse_loss", "# here", step=0),
    "teacher_detached": Planted(teacher_detached, "", "# here", step=0),
    "head_no_longer_tied": Planted(head_no_longer_tied, "", "# here", step=0),
    "average_taken_before_the_step": Planted(
        average_taken_before_the_step, "aten::lerp_", "# here"
    ),
    "dropout_of_a_frozen_branch": Planted(dropout_of_a_frozen_branch, "", "# here", step=0),
    "clipped_before_it_is_unscaled": Planted(clipped_before_it_is_unscaled, "", "# here", step=0),
    "einsum_for_matmul": _same(einsum_for_matmul),
    "picked_for_cross_entropy": _same(picked_for_cross_entropy),
    "product_and_bias_for_linear": _same(product_and_bias_for_linear),
    "causal_attention_by_hand": _same(causal_attention_by_hand),
    "one_hot_for_embedding": _same(one_hot_for_embedding),
    "copied_and_viewed_for_reshape": _same(copied_and_viewed_for_reshape),
    "requested_of_one_layer": _same(requested_of_one_layer, "float32"),
    "requested_of_autocast": _same(requested_of_autocast, "float32"),
    "requested_of_all_weights": _same(requested_of_all_weights, "float32"),
    "requested_of_single_precision": _same(requested_of_single_precision, "float64"),
    "requested_and_scaled_at_step_two": Planted(
        requested_and_scaled_at_step_two, "aten::mul", "# here", step=2, dtype="float32"
    ),
    "requested_and_over_the_wrong_axis": Planted(
        requested_and_over_the_wrong_axis, "aten::_softmax", "# here", step=0, dtype="float32"
    ),
    "requested_where_half_overflows": Planted(
        requested_where_half_overflows, "aten::mul", "# here", dtype="float32"
    ),
}
