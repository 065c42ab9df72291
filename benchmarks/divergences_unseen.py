"""Eleven planted divergences of transformer blocks and optimizers, written when the code was done."""

import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _rotated(x: Any, base: float) -> Any:
    half = x.shape[-1] // 2
    frequencies = torch.pow(base, -torch.arange(half) / half)  # here
    angles = torch.arange(x.shape[-2])[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def base_of_the_rotary_embedding(bad: bool) -> None:
    project = torch.nn.Linear(32, 96)
    x = torch.randn(2, 16, 32)
    q, k, v = project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
    base = 500_000.0 if bad else 10_000.0
    scores = _rotated(q, base) @ _rotated(k, base).transpose(-1, -2)
    (torch.softmax(scores / 8**0.5, -1) @ v).square().mean().backward()


def heads_repeated_in_another_order(bad: bool) -> None:
    q, keys, values = torch.randn(2, 8, 16, 8), torch.randn(2, 2, 16, 8), torch.randn(2, 2, 16, 8)
    if bad:
        k, v = keys.repeat(1, 4, 1, 1), values.repeat(1, 4, 1, 1)  # here
    else:
        k, v = keys.repeat_interleave(4, 1), values.repeat_interleave(4, 1)  # here
    weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
    (weights @ v).tanh().sum()


def variance_in_bfloat16(bad: bool) -> None:
    weight = torch.ones(64, dtype=torch.bfloat16, requires_grad=True)
    x = torch.randn(16, 64, dtype=torch.bfloat16)
    for _ in range(2):
        h = x if bad else x.float()
        scale = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)  # here
        x = (weight * (h * scale).to(torch.bfloat16)).tanh()
    x.float().sum().backward()


def _trained(optimizer: Any, model: Any, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()  # here


def _network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))


def learning_rate_of_one_group(bad: bool) -> None:
    model = _network()
    groups = [
        {"params": model[0].parameters()},
        {"params": model[2].parameters(), "lr": 0.011 if bad else 0.01},
    ]
    _trained(torch.optim.SGD(groups, lr=0.05, momentum=0.9, foreach=True), model)


def second_beta_of_adam(bad: bool) -> None:
    model = _network()
    betas = (0.9, 0.99 if bad else 0.999)
    _trained(torch.optim.AdamW(model.parameters(), lr=1e-3, betas=betas, foreach=True), model)


def one_micro_batch_not_averaged(bad: bool) -> None:
    model = _network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    for step in range(2):
        optimizer.zero_grad()
        for number in range(4):
            loss = model(torch.randn(8, 32)).square().mean()
            if not (bad and step == 1 and number == 3):
                loss = loss / 4  # here
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def gate_and_up_in_one_product(bad: bool) -> None:
    gate, up, down = (torch.randn(*s) / 8 for s in ((32, 128), (32, 128), (128, 32)))
    x = torch.randn(16, 32, requires_grad=True)
    if bad:
        g, u = (x @ torch.cat([gate, up], 1)).chunk(2, -1)
    else:
        g, u = x @ gate, x @ up
    ((torch.nn.functional.silu(g) * u) @ down + x).square().mean().backward()


def attention_head_by_head(bad: bool) -> None:
    project, out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
    x = torch.randn(2, 16, 32)
    q, k, v = project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
    if bad:
        heads = [
            torch.softmax(q[:, h] @ k[:, h].transpose(-1, -2) / 8**0.5, -1) @ v[:, h]
            for h in range(4)
        ]
        y = torch.stack(heads, 1)
    else:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    out(y.transpose(1, 2).flatten(2)).square().mean().backward()


def position_off_by_one_with_a_cache(bad: bool) -> None:
    tokens, places = torch.nn.Embedding(50, 32), torch.nn.Embedding(20, 32)
    project = torch.nn.Linear(32, 96)
    kept: list[Any] = []
    token = torch.zeros(2, 1, dtype=torch.long)
    with torch.no_grad():
        for number in range(6):
            at = torch.full((1,), number + (bad and number >= 3))  # here
            q, k, v = project(tokens(token) + places(at)).chunk(3, -1)
            kept.append((k, v))
            keys, values = (torch.cat(one, 1) for one in zip(*kept, strict=True))
            h = torch.softmax(q @ keys.transpose(-1, -2) / 32**0.5, -1) @ values
            token = (h @ tokens.weight.t()).argmax(-1)


def experts_normalised_before_they_are_chosen(bad: bool) -> None:
    router = torch.nn.Linear(32, 8)
    experts = [torch.nn.Linear(32, 32) for _ in range(8)]
    x = torch.randn(16, 32)
    logits = router(x)
    if bad:
        weights, chosen = torch.softmax(logits, -1).topk(2)  # here
    else:
        top, chosen = logits.topk(2)  # here
        weights = torch.softmax(top, -1)  # here
    every = torch.stack([expert(x) for expert in experts], 1)
    picked = every.gather(1, chosen[..., None].expand(-1, -1, 32))
    (picked * weights[..., None]).sum(1).square().mean().backward()


class _Residual(torch.nn.Module if torch else object):  # type: ignore[misc]
    def __init__(self, low: bool) -> None:
        super().__init__()
        self.up, self.down, self.low = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), low

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.up(x))
        if not self.low:
            return x + self.down(h)
        weight, bias = self.down.weight.bfloat16(), self.down.bias.bfloat16()
        low = torch.nn.functional.linear(h.bfloat16(), weight, bias)  # here
        return x + low.float()


def a_layer_called_without_its_module_in_bfloat16(bad: bool) -> None:
    blocks = [_Residual(bad and number == 2) for number in range(4)]
    _trained_blocks(torch.nn.Sequential(*blocks, torch.nn.Linear(16, 3)))


def _trained_blocks(model: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(
            model(torch.randn(8, 16)), torch.randint(0, 3, (8,))
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


PLANTED = {
    "a_layer_called_without_its_module_in_bfloat16": Planted(
        a_layer_called_without_its_module_in_bfloat16, "aten::addmm", "# here"
    ),
    "base_of_the_rotary_embedding": Planted(base_of_the_rotary_embedding, "aten::pow", "# here"),
    "heads_repeated_in_another_order": Planted(heads_repeated_in_another_order, "", "# here"),
    "variance_in_bfloat16": Planted(variance_in_bfloat16, "aten::pow", "# here"),
    "learning_rate_of_one_group": Planted(
        learning_rate_of_one_group, "aten::add_", "# here", step=0
    ),
    "second_beta_of_adam": Planted(second_beta_of_adam, "aten::addcmul_", "# here", step=0),
    "one_micro_batch_not_averaged": Planted(
        one_micro_batch_not_averaged, "aten::div", "# here", step=1
    ),
    "gate_and_up_in_one_product": Planted(gate_and_up_in_one_product, "", status="same"),
    "attention_head_by_head": Planted(attention_head_by_head, "", status="same"),
    "position_off_by_one_with_a_cache": Planted(
        position_off_by_one_with_a_cache, "aten::full", "# here"
    ),
    "experts_normalised_before_they_are_chosen": Planted(
        experts_normalised_before_they_are_chosen, "", "# here"
    ),
}
