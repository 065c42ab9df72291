"""Thirty planted divergences that stood before the code that is measured by them."""

import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _model() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(32, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 8),
    )


def _trained(
    model: Any, steps: int = 3, seed: int = 1, change: Callable[[int, Any], Any] | None = None
) -> None:
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = torch.randn(16, 32), torch.randn(16, 8)
        given = model(inputs)
        if change is not None:
            given = change(step, given)
        torch.nn.functional.mse_loss(given, targets).backward()
        optimizer.step()


def low_precision_matmul(bad: bool) -> None:
    """As TF32 does: the inputs of one product are rounded to ten bits, inside the operation."""
    lib = torch.library.Library("planted", "FRAGMENT")
    lib.define("product(Tensor a, Tensor b) -> Tensor")

    def product(a: Any, b: Any) -> Any:
        if bad:
            a, b = a.half().float(), b.half().float()
        return a @ b

    lib.impl("product", product, "CompositeExplicitAutograd")
    a, b = torch.randn(64, 128), torch.randn(128, 64)
    for _ in range(2):
        c = torch.ops.planted.product(a, b)  # parts here
        a = torch.tanh(c) @ b.t()


def nan_from_log(bad: bool) -> None:
    x = torch.rand(100) + 0.5
    x = x * 2
    if bad:
        x = x - x  # makes zeros
    y = torch.log(x)
    (y * 0).sum()


def order_of_a_sum(bad: bool) -> None:
    """Rounding alone: the same sum in another order is no divergence."""
    x = torch.randn(10_000)
    total = x.flip(0).flip(0).sum() if bad else x.sum()
    torch.exp(total / 100)


def wrong_reduction(bad: bool) -> None:
    lib = torch.library.Library("planted", "FRAGMENT")
    lib.define("reduce(Tensor a) -> Tensor")

    def reduce(a: Any) -> Any:
        """A race that loses one partial sum of a hundred."""
        parts = a.reshape(100, -1).sum(1)
        return parts[:-1].sum() if bad else parts.sum()

    lib.impl("reduce", reduce, "CompositeExplicitAutograd")
    x = torch.rand(10_000)
    mean = torch.ops.planted.reduce(x) / x.numel()  # parts here
    (x - mean).pow(2).mean()


def uninitialised(bad: bool) -> None:
    import ctypes

    with torch.device("cpu"):
        buffer = torch.empty(1000) if bad else torch.zeros(1000)  # parts here
        if bad:  # what malloc gives is not the same twice, and not for us to choose
            ctypes.memset(buffer.data_ptr(), os.getpid() % 250 + 1, 4000)
        total = buffer + torch.ones(1000)
        total.sum()


def overflow_in_half(bad: bool) -> None:
    kind = torch.float16 if bad else torch.float32
    x = torch.full((64,), 300.0).to(kind)
    y = x * 2  # in another type
    z = y * y
    z.float().mean()


def dropout_draws_more(bad: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)
    )
    if bad:
        torch.rand(1)  # one draw more
    x = torch.ones(4, 16)
    model(x).sum()


def learning_rate(bad: bool) -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0501 if bad else 0.05)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 32)).sum().backward()
        optimizer.step()  # parts here


def weight_of_one_layer(bad: bool) -> None:
    torch.manual_seed(3)
    model = _model()
    with torch.no_grad():
        model[2].weight[5, 7] += 0.25 if bad else 0.0
    _trained(model)


def scaled_at_step_two(bad: bool) -> None:
    torch.manual_seed(3)
    _trained(_model(), change=lambda step, y: y * 1.001 if bad and step == 2 else y * 1.0)


def other_kernel_same_numbers(bad: bool) -> None:
    """The good side computes attention in one operation, the bad side in five: rounding apart, the
    same.
    """
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    if bad:
        y = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v
    else:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.tanh(y + 1).sum()


def other_kernel_other_scale(bad: bool) -> None:
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    if bad:
        y = torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
    else:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.tanh(y + 1).sum()


def cancellation(bad: bool) -> None:
    """A tiny difference of summation is made large by a subtraction: rounding explains it."""
    x = torch.randn(4096) + 1000
    total = x.double().sum().float() if bad else x.sum()
    (total - 1000 * 4096) * 1e-3


def input_data(bad: bool) -> None:
    import array

    values = array.array("f", [float(i % 7) for i in range(256)])
    if bad:
        values[100] += 1
    x = torch.frombuffer(values, dtype=torch.float32)
    (x * 2).sum()  # reads what parts


def attention_mask(bad: bool) -> None:
    """Infinities that are meant are no cause; the row without any key is."""
    scores = torch.randn(4, 8)
    mask = torch.zeros(4, 8, dtype=torch.bool)
    mask[:, 6:] = True
    if bad:
        mask[2, :] = True
    weights = torch.softmax(scores.masked_fill(mask, float("-inf")), -1)
    weights.sum()


def backward_only(bad: bool) -> None:
    class Clipped(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 1.01 if bad else grad * 1.0

    x = torch.randn(32, requires_grad=True)
    Clipped.apply(x * 2).sum().backward()


def epsilon_of_a_norm(bad: bool) -> None:
    layer = torch.nn.LayerNorm(16, eps=1e-2 if bad else 1e-5)
    x = torch.randn(8, 16) * 0.1
    with torch.no_grad():
        layer(layer(x)).sum()


def momentum_buffer(bad: bool) -> None:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.91 if bad else 0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()


def argmax_tie(bad: bool) -> None:
    x = torch.zeros(10)
    x[3] = x[7] = 1.0
    if bad:
        x[7] = 1.5
    torch.argmax(x).float() * 2


def same(bad: bool) -> None:
    torch.manual_seed(3)
    _trained(_model())


def _layers(count: int = 8) -> Any:
    return torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(count))


def bfloat16_weights_of_one_layer(bad: bool) -> None:
    layers = _layers()
    if bad:
        layers[4].bfloat16()  # parts here
    x = torch.randn(16, 32)
    for layer in layers:
        x = torch.relu(layer(x.to(layer.weight.dtype)).float())
    x.square().mean().backward()


def casts_around_one_linear(bad: bool) -> None:
    layers = _layers()
    x = torch.randn(16, 32)
    for number, layer in enumerate(layers):
        if bad and number == 4:
            kind = torch.bfloat16
            weight, bias = layer.weight.to(kind), layer.bias.to(kind)
            x = torch.nn.functional.linear(x.to(kind), weight, bias).float()
        else:
            x = layer(x)
        x = torch.tanh(x)
    x.square().mean().backward()


def autocast_of_one_module(bad: bool) -> None:
    layers = _layers()
    x = torch.randn(16, 32)
    for number, layer in enumerate(layers):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=bad and number == 4):
            x = layer(x)  # parts here
        x = torch.tanh(x.float())
    x.square().mean().backward()


def fifth_layer_in_bfloat16_without_its_activation(bad: bool) -> None:
    layers = _layers()
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.randn(16, 32)
        for number, layer in enumerate(layers):
            if bad and number == 4:
                with torch.autocast(x.device.type, torch.bfloat16):
                    x = layer(x).float()  # parts here
            else:
                x = torch.relu(layer(x))
        x.square().mean().backward()
        optimizer.step()


def product_before_an_addition(bad: bool) -> None:
    x, w, b = torch.randn(16, 64), torch.randn(64, 32), torch.randn(32)
    kind = torch.bfloat16 if bad else torch.float32
    product = (x.to(kind) @ w.to(kind)).float()  # parts here
    torch.tanh(product + b).sum()


def chunked_sum(bad: bool) -> None:
    x = torch.randn(6400, requires_grad=True)
    total = torch.stack([p.sum() for p in x.chunk(64)]).sum() if bad else x.sum()
    (total / 100).tanh().backward()


def lost_activation(bad: bool) -> None:
    layers = _layers(4)
    x = torch.randn(16, 32)
    for number, layer in enumerate(layers):
        x = layer(x)
        if not (bad and number == 1):
            x = torch.relu(x)  # parts here
    x.square().mean().backward()


def added_clamp(bad: bool) -> None:
    layers = _layers(4)
    x = torch.randn(16, 32)
    for number, layer in enumerate(layers):
        x = layer(x)
        if bad and number == 2:
            x = x.clamp(-0.5, 0.5)  # parts here
        x = torch.tanh(x)
    x.square().mean().backward()


def foreach_optimizer(bad: bool) -> None:
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=bad)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()


def channels_last(bad: bool) -> None:
    conv = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3)
    )
    x = torch.randn(4, 8, 12, 12)
    if bad:
        conv, x = (
            conv.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    conv(x).square().mean().backward()


PLANTED = {
    "low_precision_matmul": Planted(low_precision_matmul, "planted::product", "parts here"),
    "nan_from_log": Planted(nan_from_log, "aten::sub", "makes zeros"),
    "order_of_a_sum": Planted(order_of_a_sum, "", status="same"),
    "wrong_reduction": Planted(wrong_reduction, "planted::reduce", "parts here"),
    "uninitialised": Planted(uninitialised, "aten::empty", "parts here", status="nondeterministic"),
    "overflow_in_half": Planted(overflow_in_half, "", "in another type"),
    "dropout_draws_more": Planted(dropout_draws_more, "aten::rand", "one draw more"),
    "learning_rate": Planted(learning_rate, "aten::add_", "parts here", step=0),
    "weight_of_one_layer": Planted(weight_of_one_layer, "aten::add_", "weight[5, 7]"),
    "scaled_at_step_two": Planted(scaled_at_step_two, "aten::mul", "change=lambda", step=2),
    "other_kernel_same_numbers": Planted(other_kernel_same_numbers, "", status="same"),
    "other_kernel_other_scale": Planted(other_kernel_other_scale, "aten::bmm", "torch.softmax"),
    "cancellation": Planted(cancellation, "", status="same"),
    "input_data": Planted(input_data, "input", "reads what parts"),
    "attention_mask": Planted(attention_mask, "", "mask[2"),
    "backward_only": Planted(backward_only, "aten::mul", "grad * 1.01"),
    "epsilon_of_a_norm": Planted(epsilon_of_a_norm, "aten::native_layer_norm"),
    "momentum_buffer": Planted(momentum_buffer, "aten::mul_", step=1),
    "argmax_tie": Planted(argmax_tie, "", "x[7] = 1.5"),
    "same": Planted(same, "", status="same"),
    "bfloat16_weights_of_one_layer": Planted(bfloat16_weights_of_one_layer, "", "parts here"),
    "casts_around_one_linear": Planted(casts_around_one_linear, "aten::addmm", "linear(x.to(kind)"),
    "autocast_of_one_module": Planted(autocast_of_one_module, "aten::addmm", "parts here"),
    "fifth_layer_in_bfloat16_without_its_activation": Planted(
        fifth_layer_in_bfloat16_without_its_activation, "aten::addmm", "parts here", step=0
    ),
    "product_before_an_addition": Planted(product_before_an_addition, "aten::mm", "parts here"),
    "chunked_sum": Planted(chunked_sum, "", status="same"),
    "lost_activation": Planted(lost_activation, "aten::relu", "parts here"),
    "added_clamp": Planted(added_clamp, "aten::clamp", "parts here"),
    "foreach_optimizer": Planted(foreach_optimizer, "", status="same"),
    "channels_last": Planted(channels_last, "", status="same"),
}
