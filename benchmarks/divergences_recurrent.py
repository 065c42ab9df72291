"""Planted divergences of recurrent, graph, generative and reinforcement models: each line was marked
before `aorta diverge` had seen it. The last eight were written with its code at hand; in most of
them the sides differ harmlessly first.
"""

import sys
from typing import Any

from benchmarks.divergences import Planted

torch: Any = sys.modules.get("torch")  # of the process that runs the programs


def _gru_step(x: Any, h: Any, w: Any, u: Any) -> Any:
    (wr, wz, wn), (ur, uz, un) = w.chunk(3, 1), u.chunk(3, 1)
    r, z = torch.sigmoid(x @ wr + h @ ur), torch.sigmoid(x @ wz + h @ uz)
    return (1 - z) * torch.tanh(x @ wn + r * (h @ un)) + z * h


def hidden_state_kept_in_bfloat16(bad: bool) -> None:
    w, u = (torch.randn(n, 48).div(4).requires_grad_() for n in (8, 16))
    optimizer = torch.optim.SGD([w, u], lr=0.1)
    for _ in range(2):
        h = torch.zeros(4, 16)
        for x in torch.randn(5, 4, 8):
            h = _gru_step(x, h, w, u)
            if bad:
                h = h.bfloat16().float()  # here
        optimizer.zero_grad()
        h.square().mean().backward()
        optimizer.step()


def degrees_of_the_wrong_end(bad: bool) -> None:
    edges = (torch.rand(24, 24) < 0.2).float()
    features, weight = torch.randn(24, 16), torch.randn(16, 8, requires_grad=True)
    for _ in range(2):
        degree = edges.sum(0 if bad else 1)  # here
        spread = edges / degree.clamp(min=1)[:, None]
        out = torch.relu(spread @ (features @ weight))
        out.square().mean().backward()


def noise_without_its_root(bad: bool) -> None:
    denoise = torch.nn.Sequential(torch.nn.Linear(17, 64), torch.nn.SiLU(), torch.nn.Linear(64, 16))
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    optimizer = torch.optim.Adam(denoise.parameters(), lr=1e-3)
    for _ in range(3):
        clean, noise = torch.randn(32, 16), torch.randn(32, 16)
        time = torch.randint(0, 100, (32,))
        a = kept[time][:, None]
        share = 1 - a
        if not bad:
            share = share.sqrt()  # here
        noisy = a.sqrt() * clean + share * noise
        guess = denoise(torch.cat([noisy, time[:, None] / 100], 1))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(guess, noise).backward()
        optimizer.step()


class _Spectral(torch.nn.Module if torch else object):  # type: ignore[misc]
    def __init__(self, forgets: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24, 16))
        self.register_buffer("u", torch.nn.functional.normalize(torch.randn(24), dim=0))
        self.forgets = forgets

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            v = torch.nn.functional.normalize(self.weight.t() @ self.u, dim=0)  # here
            u = torch.nn.functional.normalize(self.weight @ v, dim=0)
            if not self.forgets:
                self.u.copy_(u)  # here
        sigma = u @ self.weight @ v
        return x @ (self.weight / sigma).t()


def power_iteration_not_kept(bad: bool) -> None:
    critic = torch.nn.Sequential(_Spectral(bad), torch.nn.LeakyReLU(0.2), torch.nn.Linear(24, 1))
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.05)
    for _ in range(3):
        real, fake = torch.randn(8, 16), torch.rand(8, 16)
        optimizer.zero_grad()
        (critic(fake).mean() - critic(real).mean()).backward()
        optimizer.step()


def states_of_a_rollout_are_one_tensor(bad: bool) -> None:
    policy = torch.nn.Linear(6, 6)
    state, seen = torch.randn(3, 6), []
    with torch.no_grad():
        for _ in range(5):
            seen.append(state if bad else state.clone())  # here
            state.mul_(0.9).add_(torch.tanh(policy(state)))
        rollout = torch.stack(seen)  # here
    value = torch.nn.Linear(6, 1)
    value(rollout).square().mean().backward()


def gates_of_an_lstm_swapped(bad: bool) -> None:
    w, u = torch.nn.Linear(8, 64), torch.nn.Linear(16, 64)
    h = c = torch.zeros(4, 16)
    for x in torch.randn(6, 4, 8):
        i, f, g, o = (w(x) + u(h)).chunk(4, -1)
        if bad:
            g, o = o, g
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # here
        h = torch.sigmoid(o) * torch.tanh(c)
    h.square().mean().backward()


def rmsprop_centered(bad: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Conv1d(3, 8, 3), torch.nn.Tanh(), torch.nn.Conv1d(8, 2, 3))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, centered=bad, foreach=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 12)).square().mean().backward()
        optimizer.step()  # here


def slopes_drawn_in_evaluation(bad: bool) -> None:
    encoder = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.RReLU(), torch.nn.Flatten())
    head = torch.nn.Linear(4 * 6 * 6, 5)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
    for _ in range(2):
        images, labels = torch.randn(6, 1, 8, 8), torch.randint(0, 5, (6,))
        encoder.train()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(encoder(images)), labels).backward()
        optimizer.step()
    if not bad:
        encoder.eval()
    with torch.no_grad():
        (head(encoder(torch.randn(6, 1, 8, 8))).argmax(-1) == 0).float().mean()  # here


def mixed_before_the_share_is_drawn(bad: bool) -> None:
    classify = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.ELU(), torch.nn.Linear(32, 4))
    for _ in range(2):
        x, y = torch.randn(16, 12), torch.eye(4)[torch.randint(0, 4, (16,))]
        if bad:
            other = torch.randperm(16)  # here
            share = torch.rand(16, 1)  # here
        else:
            share = torch.rand(16, 1)  # here
            other = torch.randperm(16)  # here
        x, y = share * x + (1 - share) * x[other], share * y + (1 - share) * y[other]
        torch.nn.functional.cross_entropy(classify(x), y).backward()


def sampler_without_its_epoch(bad: bool) -> None:
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    rows = TensorDataset(torch.randn(24, 5), torch.randn(24, 1))
    sampler: Any = DistributedSampler(rows, num_replicas=2, rank=0, seed=3)
    loader = DataLoader(rows, batch_size=6, sampler=sampler)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        if not bad:
            sampler.set_epoch(epoch)
        with torch.device("cpu"):  # where a sampler draws
            batches = [*loader]  # here
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


# -- the same numbers, by other operations ---------------------------------------------------------


def lstm_cell_by_cell(bad: bool) -> None:
    fused = torch.nn.LSTM(8, 16)
    head = torch.nn.Linear(16, 3)
    x = torch.randn(6, 4, 8)
    if bad:
        h, c = torch.zeros(4, 16), torch.zeros(4, 16)
        given = []
        for one in x:
            gates = torch.nn.functional.linear(one, fused.weight_ih_l0, fused.bias_ih_l0)
            gates = gates + torch.nn.functional.linear(h, fused.weight_hh_l0, fused.bias_hh_l0)
            i, f, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            given.append(h)
        out = torch.stack(given)
    else:
        out, _ = fused(x)
    head(out).square().mean().backward()


def neighbours_added_by_index(bad: bool) -> None:
    edges = (torch.rand(20, 20) < 0.3).float()
    project = torch.nn.Linear(8, 8)
    h = project(torch.randn(20, 8))
    if bad:
        to, source = edges.nonzero(as_tuple=True)
        h = torch.zeros(20, 8).index_add(0, to, h[source])
    else:
        h = edges @ h
    torch.tanh(h).square().mean().backward()


def rmsprop_one_by_one(bad: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Conv1d(3, 8, 3), torch.nn.Tanh(), torch.nn.Conv1d(8, 2, 3))
    optimizer = torch.optim.RMSprop(
        model.parameters(), lr=1e-2, momentum=0.9, centered=True, foreach=not bad
    )
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 12)).square().mean().backward()
        optimizer.step()


def contrast_in_two_halves(bad: bool) -> None:
    encoder = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for _ in range(3):
        views = torch.randn(2, 12, 10)
        a, b = (torch.nn.functional.normalize(encoder(v), dim=-1) for v in views)
        scores = a @ b.t() / 0.1
        if bad:
            halves = [half.logsumexp(-1) for half in scores.chunk(2, -1)]
            norm = torch.logaddexp(*halves)
            loss = (norm - scores.diagonal()).mean()
        else:
            loss = torch.nn.functional.cross_entropy(scores, torch.arange(12))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sliced_for_a_loader(bad: bool) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    x, y = torch.randn(24, 5), torch.randn(24, 1)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sliced = ((x[at : at + 6], y[at : at + 6]) for at in range(0, 24, 6))
    for features, target in sliced if bad else DataLoader(TensorDataset(x, y), batch_size=6):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(features), target).backward()
        optimizer.step()


def recurrence_by_doubling(bad: bool) -> None:
    project = torch.nn.Linear(6, 8)
    x = torch.randn(4, 16, 6)
    decay = torch.sigmoid(torch.randn(4, 16, 4))
    a, b = decay, project(x)[..., :4]
    if bad:
        step = 1
        while step < 16:
            before = torch.nn.functional.pad(b, (0, 0, step, 0))[:, :16]
            factor = torch.nn.functional.pad(a, (0, 0, step, 0), value=1.0)[:, :16]
            a, b = a * factor, a * before + b
            step *= 2
        h = b
    else:
        state, given = torch.zeros(4, 4), []
        for t in range(16):
            state = a[:, t] * state + b[:, t]
            given.append(state)
        h = torch.stack(given, 1)
    h.square().mean().backward()


def _distilled(with_gradient: bool, axis: int) -> None:
    student, teacher = (torch.nn.GRUCell(6, 12) for _ in range(2))
    head = torch.nn.Linear(12, 12)
    optimizer = torch.optim.SGD([*student.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        x = torch.randn(12, 6)
        with torch.set_grad_enabled(with_gradient):
            wanted = torch.softmax(teacher(x).detach(), axis)  # here
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(student(x)), wanted).backward()
        optimizer.step()


def teacher_with_its_gradients(bad: bool) -> None:
    _distilled(bad, -1)


def teacher_with_its_gradients_over_the_wrong_axis(bad: bool) -> None:
    _distilled(bad, 0 if bad else -1)


# -- other operations for the same numbers first, then a fault -------------------------------------


def _mixed(x: Any, weights: Any, at_once: bool) -> Any:
    """Three products, or one."""
    if at_once:
        return (x @ torch.cat(weights, 1)).chunk(3, -1)
    return [x @ weight for weight in weights]


def at_once_and_over_the_wrong_axis(bad: bool) -> None:
    weights = [torch.randn(16, 16).div(4).requires_grad_() for _ in range(3)]
    q, k, v = _mixed(torch.randn(16, 16), weights, at_once=bad)
    share = torch.softmax(q @ k.t() / 4, 0 if bad else -1)  # here
    (share @ v).square().mean().backward()


def at_once_and_without_an_activation(bad: bool) -> None:
    weights = [torch.randn(16, 16).div(4).requires_grad_() for _ in range(3)]
    head = torch.nn.Linear(16, 4)
    a, b, c = _mixed(torch.randn(12, 16), weights, at_once=bad)
    h = a * torch.sigmoid(b) + c
    if not bad:
        h = torch.nn.functional.elu(h)  # here
    head(h).square().mean().backward()


def one_by_one_and_another_rate_later(bad: bool) -> None:
    model = torch.nn.GRU(6, 8)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, foreach=not bad)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 2e-3 if step == 2 and not bad else 1e-2
        optimizer.zero_grad()
        model(torch.randn(5, 3, 6))[0].square().mean().backward()
        optimizer.step()  # here


def in_chunks_and_a_mean_for_a_sum(bad: bool) -> None:
    encoder = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Mish())
    x = torch.randn(24, 8)
    h = torch.cat([encoder(part) for part in x.chunk(3)]) if bad else encoder(x)
    pooled = h.view(4, 6, 32).mean(1) if bad else h.view(4, 6, 32).sum(1)  # here
    pooled.tanh().square().mean().backward()


class _Centered(torch.nn.Module if torch else object):  # type: ignore[misc]
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.cell, self.axis = torch.nn.GRUCell(8, 8), axis

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.cell(x))
        return x + h - h.mean(self.axis, keepdim=True)  # here


class _Named(torch.nn.Module if torch else object):  # type: ignore[misc]
    """Blocks that each side calls otherwise, as two revisions of one program may."""

    def __init__(self, name: str, axes: Any) -> None:
        super().__init__()
        self.name = name
        setattr(self, name, torch.nn.ModuleList(map(_Centered, axes)))

    def forward(self, x: Any) -> Any:
        for block in getattr(self, self.name):
            x = block(x)
        return x


def _renamed(bad: bool, axis: int) -> None:
    model = _Named("cells" if bad else "layers", (-1, -1, axis, -1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()


def modules_called_otherwise(bad: bool) -> None:
    _renamed(bad, -1)


def modules_called_otherwise_and_the_wrong_axis(bad: bool) -> None:
    _renamed(bad, 0 if bad else -1)


def _same(program: Any) -> Planted:
    return Planted(program, "", status="same")


PLANTED = {
    "hidden_state_kept_in_bfloat16": Planted(hidden_state_kept_in_bfloat16, "", "# here", step=0),
    "degrees_of_the_wrong_end": Planted(degrees_of_the_wrong_end, "aten::sum", "# here"),
    "noise_without_its_root": Planted(noise_without_its_root, "aten::sqrt", "# here", step=0),
    "power_iteration_not_kept": Planted(power_iteration_not_kept, "", "# here", step=0),
    "states_of_a_rollout_are_one_tensor": Planted(states_of_a_rollout_are_one_tensor, "", "# here"),
    "gates_of_an_lstm_swapped": Planted(gates_of_an_lstm_swapped, "", "# here"),
    "rmsprop_centered": Planted(rmsprop_centered, "", "# here", step=0),
    "slopes_drawn_in_evaluation": Planted(slopes_drawn_in_evaluation, "", "# here", step=2),
    "mixed_before_the_share_is_drawn": Planted(mixed_before_the_share_is_drawn, "", "# here"),
    "sampler_without_its_epoch": Planted(
        sampler_without_its_epoch, "aten::randperm", "# here", step=2
    ),
    "lstm_cell_by_cell": _same(lstm_cell_by_cell),
    "neighbours_added_by_index": _same(neighbours_added_by_index),
    "rmsprop_one_by_one": _same(rmsprop_one_by_one),
    "contrast_in_two_halves": _same(contrast_in_two_halves),
    "sliced_for_a_loader": _same(sliced_for_a_loader),
    "recurrence_by_doubling": _same(recurrence_by_doubling),
    "teacher_with_its_gradients": _same(teacher_with_its_gradients),
    "teacher_with_its_gradients_over_the_wrong_axis": Planted(
        teacher_with_its_gradients_over_the_wrong_axis, "aten::_softmax", "# here", step=0
    ),
    "at_once_and_over_the_wrong_axis": Planted(
        at_once_and_over_the_wrong_axis, "aten::_softmax", "# here"
    ),
    "at_once_and_without_an_activation": Planted(
        at_once_and_without_an_activation, "aten::elu", "# here"
    ),
    "one_by_one_and_another_rate_later": Planted(
        one_by_one_and_another_rate_later, "", "# here", step=2
    ),
    "in_chunks_and_a_mean_for_a_sum": Planted(in_chunks_and_a_mean_for_a_sum, "", "# here"),
    "modules_called_otherwise": _same(modules_called_otherwise),
    "modules_called_otherwise_and_the_wrong_axis": Planted(
        modules_called_otherwise_and_the_wrong_axis, "aten::mean", "# here", step=0
    ),
}
