"""Thirty planted divergences that were written after the code that is measured by them."""

import os
import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _block() -> Any:
    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(32)
            self.up = torch.nn.Linear(32, 64)
            self.down = torch.nn.Linear(64, 32)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    return Block()


def _stack(count: int = 3) -> Any:
    return torch.nn.Sequential(*(_block() for _ in range(count)))


# -- precision -------------------------------------------------------------------------------------


def float16_of_one_layer(bad: bool) -> None:
    up, down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
    x = torch.randn(16, 32)
    for _ in range(2):
        h = torch.relu(up(x))
        kind = torch.float16 if bad else torch.float32
        w = down.weight.to(kind)
        x = torch.tanh((h.to(kind) @ w.t()).float() + down.bias)  # here
    x.sum().backward()


def float8_round_trip(bad: bool) -> None:
    model, x = _stack(), torch.randn(16, 32)
    x = model[0](x)
    if bad:
        x = x.to(torch.float8_e4m3fn).to(torch.float32)  # here
    x = model[2](model[1](x))
    x.square().mean().backward()


def tf32_product(bad: bool) -> None:
    x, w = torch.randn(64, 256), torch.randn(256, 64) / 16
    on_gpu = x.device.type == "cuda"
    if on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = bad
    lib = torch.library.Library("rounded", "FRAGMENT")
    lib.define("product(Tensor a, Tensor b) -> Tensor")
    lib.impl(
        "product",
        lambda a, b: a.half().float() @ b.half().float() if bad else a @ b,
        "CompositeExplicitAutograd",
    )
    for _ in range(2):
        h = torch.tanh(x)
        y = h @ w if on_gpu else torch.ops.rounded.product(h, w)  # here
        x = y @ w.t()
    x.sum()


def momentum_in_bfloat16(bad: bool) -> None:
    model = _stack(2)
    parameters = list(model.parameters())
    kind = torch.bfloat16 if bad else torch.float32
    momenta = [torch.zeros_like(p, dtype=kind) for p in parameters]  # here
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(8, 32)).square().mean().backward()
        with torch.no_grad():
            for parameter, momentum in zip(parameters, momenta, strict=True):
                momentum.mul_(0.9).add_(parameter.grad)
                parameter.sub_(0.1 * momentum)


def autocast_everywhere(bad: bool) -> None:
    model, x = _stack(), torch.randn(16, 32)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=bad):
        h = model(x)
    h.float().square().mean().backward()


def residual_in_bfloat16(bad: bool) -> None:
    model, x = _stack(), torch.randn(16, 32)
    for block in model:
        x = block(x)
        if bad:
            x = x.bfloat16().float()  # here
    x.square().mean().backward()


# -- other kernels and orders that are the same ----------------------------------------------------


def one_projection_for_three(bad: bool) -> None:
    x = torch.randn(16, 32, requires_grad=True)
    weights = [torch.randn(32, 32) / 6 for _ in range(3)]
    if bad:
        q, k, v = (x @ torch.cat(weights).t()).chunk(3, -1)
    else:
        q, k, v = (x @ weight.t() for weight in weights)
    (torch.softmax(q @ k.t() / 6, -1) @ v).square().mean().backward()


def micro_batches_in_reverse(bad: bool) -> None:
    model = _stack(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        batches = list(torch.randn(4, 8, 32).unbind())
        for batch in reversed(batches) if bad else batches:
            (model(batch).square().mean() / 4).backward()
        optimizer.step()


def cross_entropy_in_chunks(bad: bool) -> None:
    head = torch.nn.Linear(32, 100)
    x, labels = torch.randn(64, 32), torch.randint(0, 100, (64,))
    entropy = torch.nn.functional.cross_entropy
    if bad:
        parts = zip(x.chunk(4), labels.chunk(4), strict=True)
        loss = sum(entropy(head(part), label, reduction="sum") for part, label in parts) / 64
    else:
        loss = entropy(head(x), labels)
    loss.backward()
    with torch.no_grad():
        head.weight.sub_(head.weight.grad)
    head(x).logsumexp(-1).mean()


def attention_in_half_precision(bad: bool) -> None:
    q, k, v = (torch.randn(2, 4, 32, 16, dtype=torch.bfloat16) for _ in range(3))
    if bad:
        weights = torch.softmax((q @ k.transpose(-1, -2)).float() / 4, -1)
        y = weights.to(torch.bfloat16) @ v
    else:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.nn.functional.silu(y).float().mean()


def fused_optimizer(bad: bool) -> None:
    model = _stack(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=bad, foreach=not bad)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()


def recomputed_activations(bad: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    model, x = _stack(), torch.randn(16, 32, requires_grad=True)
    for block in model:
        x = checkpoint(block, x, use_reentrant=False) if bad else block(x)
    x.square().mean().backward()


def statistic_on_one_side(bad: bool) -> None:
    model, x = _stack(), torch.randn(16, 32)
    for block in model:
        x = block(x).clamp(-1e6, 1e6) if bad else block(x)
        if bad:
            float(x.detach().abs().max())
    x.square().mean().backward()


# -- what is wrong ---------------------------------------------------------------------------------


def softmax_over_the_wrong_axis(bad: bool) -> None:
    q, k, v = (torch.randn(16, 16) for _ in range(3))
    scores = q @ k.t() / 4
    weights = torch.softmax(scores, 0 if bad else -1)  # here
    (weights @ v).tanh().sum()


def mean_over_the_wrong_axis(bad: bool) -> None:
    x = torch.randn(16, 32)
    centred = torch.relu(x)
    scale = centred.mean(0 if bad else 1)  # here
    (scale.square().sum() + 1).log()


def transposed_weight(bad: bool) -> None:
    x, w = torch.randn(8, 32), torch.randn(32, 32) / 6
    h = torch.tanh(x @ w)
    h = torch.tanh(h @ (w.t() if bad else w))  # here
    h.square().mean()


def stale_buffer(bad: bool) -> None:
    model = _stack(2)
    teacher = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 32)).square().mean()
        gap = sum((p - t).square().sum() for p, t in zip(model.parameters(), teacher, strict=True))
        (loss + 0.1 * gap).backward()
        optimizer.step()
        if not (bad and step == 0):
            with torch.no_grad():
                for old, parameter in zip(teacher, model.parameters(), strict=True):
                    old.lerp_(parameter, 0.5)  # here


def causal_mask_off_by_one(bad: bool) -> None:
    q, k, v = (torch.randn(2, 16, 8) for _ in range(3))
    ones = torch.ones(16, 16, dtype=torch.bool)
    mask = ones.triu(2 if bad else 1)  # here
    scores = (q @ k.transpose(-1, -2)).masked_fill(mask, float("-inf"))
    (torch.softmax(scores, -1) @ v).tanh().sum()


def padding_mask_inverted(bad: bool) -> None:
    x, lengths = torch.randn(4, 10, 8), torch.tensor([10, 7, 3, 5])
    mask = torch.arange(10)[None] < lengths[:, None]
    if bad:
        mask = ~mask  # here
    pooled = (x * mask[..., None]).sum(1) / 10
    pooled.tanh().sum()


def residual_written_over(bad: bool) -> None:
    model, x = _stack(2), torch.randn(8, 32)
    for block in model:
        residual = x
        update = block(x).detach()
        if bad:
            x += update  # here
        else:
            x = x + update
        x = torch.tanh(x) + residual
    x.sum()


def dropout_in_evaluation(bad: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 8)
    )
    if not bad:
        model.eval()
    with torch.no_grad():
        model(torch.randn(8, 32)).tanh().sum()  # here


def batch_norm_in_evaluation(bad: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 8)
    )
    if not bad:
        model.eval()
    with torch.no_grad():
        model(torch.randn(8, 32)).tanh().sum()  # here


def lost_all_reduce(bad: bool) -> None:
    import torch.distributed as dist

    rank, store = int(os.environ["RANK"]), f"file://{os.environ['STORE']}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    with torch.device("cpu"):
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 16) + rank).square().mean().backward()
            for name, parameter in model.named_parameters():
                if not (bad and step == 1 and name == "2.weight"):
                    dist.all_reduce(parameter.grad)  # here
            optimizer.step()
    dist.destroy_process_group()


def unfilled_tail(bad: bool) -> None:
    """What the allocator leaves behind is not the same twice, so it is written here."""
    import ctypes

    with torch.device("cpu"):
        rows = torch.randn(12, 32)
        batch = torch.empty(16, 32) if bad else torch.zeros(16, 32)  # here
        if bad:
            ctypes.memset(batch.data_ptr(), os.getpid() % 60 + 1, 4 * 16 * 32)
        batch[:12] = rows
        torch.tanh(batch).sum()


def draws_in_another_order(bad: bool) -> None:
    x = torch.ones(16, 32)
    first, second = (16, 64), (64, 8)
    shapes = (second, first) if bad else (first, second)
    drawn = {shape: torch.randn(shape) for shape in shapes}  # here
    (torch.tanh(x.t() @ drawn[first]) @ drawn[second]).sum()


def a_draw_more_of_the_same_shape(bad: bool) -> None:
    x = torch.ones(16, 32)
    if bad:
        noise = torch.randn(16, 32)  # here
    noise = torch.randn(16, 32)
    torch.tanh(x + 0.1 * noise).sum()


def lost_bias(bad: bool) -> None:
    x, w, b = torch.randn(8, 32), torch.randn(32, 32) / 6, torch.randn(32)
    h = torch.relu(x @ w)
    h = h @ w if bad else torch.addmm(b, h, w)  # here
    h.square().mean()


def residual_added_twice(bad: bool) -> None:
    model, x = _stack(), torch.randn(8, 32)
    for number, block in enumerate(model):
        h = block(x)
        if bad and number == 1:
            h = h + x  # here
        x = torch.tanh(h)
    x.square().mean().backward()


def lost_gradient_clipping(bad: bool) -> None:
    model = _stack(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (10 * model(torch.randn(8, 32))).square().mean().backward()
        if not (bad and step == 1):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
        optimizer.step()


def labels_one_place_off(bad: bool) -> None:
    tokens = torch.randint(0, 50, (4, 17))
    model = torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50))
    logits = model(tokens[:, :-1]).flatten(0, 1)
    labels = (tokens[:, :-1] if bad else tokens[:, 1:]).reshape(-1)  # here
    torch.nn.functional.cross_entropy(logits, labels).backward()


def _same(program: Any) -> Planted:
    return Planted(program, "", status="same")


def _found(program: Any, op: str = "", **more: Any) -> Planted:
    return Planted(program, op, "# here", **more)


PLANTED = {
    "float16_of_one_layer": _found(float16_of_one_layer, "aten::mm"),
    "float8_round_trip": _found(float8_round_trip),
    "tf32_product": _found(tf32_product),
    "momentum_in_bfloat16": _found(momentum_in_bfloat16),
    "autocast_everywhere": Planted(
        autocast_everywhere, "aten::addmm", "self.up(self.norm(x))", module="0.up"
    ),
    "residual_in_bfloat16": _found(residual_in_bfloat16),
    "one_projection_for_three": _same(one_projection_for_three),
    "micro_batches_in_reverse": _same(micro_batches_in_reverse),
    "cross_entropy_in_chunks": _same(cross_entropy_in_chunks),
    "attention_in_half_precision": _same(attention_in_half_precision),
    "fused_optimizer": _same(fused_optimizer),
    "recomputed_activations": _same(recomputed_activations),
    "statistic_on_one_side": _same(statistic_on_one_side),
    "softmax_over_the_wrong_axis": _found(softmax_over_the_wrong_axis, "aten::_softmax"),
    "mean_over_the_wrong_axis": _found(mean_over_the_wrong_axis, "aten::mean"),
    "transposed_weight": _found(transposed_weight, "aten::mm"),
    "stale_buffer": _found(stale_buffer, "aten::lerp_"),
    "causal_mask_off_by_one": _found(causal_mask_off_by_one, "aten::triu"),
    "padding_mask_inverted": _found(padding_mask_inverted, "aten::bitwise_not"),
    "residual_written_over": _found(residual_written_over, "aten::add_"),
    "dropout_in_evaluation": _found(dropout_in_evaluation),
    "batch_norm_in_evaluation": _found(batch_norm_in_evaluation),
    "lost_all_reduce": _found(lost_all_reduce, "c10d::allreduce_", step=1, ranks=2),
    "unfilled_tail": _found(unfilled_tail, "aten::empty", status="nondeterministic"),
    "draws_in_another_order": _found(draws_in_another_order),
    "a_draw_more_of_the_same_shape": _found(a_draw_more_of_the_same_shape, "aten::randn"),
    "lost_bias": _found(lost_bias),
    "residual_added_twice": _found(residual_added_twice, "aten::add"),
    "lost_gradient_clipping": _found(lost_gradient_clipping),
    "labels_one_place_off": _found(labels_one_place_off),
}
