"""Arguments that an op does not read are dropped, and only those."""

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from passes.cleanup.batch_norm_stats import drop_unread

BACKWARD = torch.ops.aten.native_batch_norm_backward.default


def traced(training: bool) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    def backward(*args: torch.Tensor) -> list[torch.Tensor]:
        grad, x, weight, mean, var, saved_mean, saved_scale = args
        found = BACKWARD(
            grad, x, weight, mean, var, saved_mean, saved_scale, training, 1e-5, [True] * 3
        )
        return list(found)

    torch.manual_seed(0)
    x, weight = torch.randn(8, 3, 4), torch.randn(3)
    stats = [torch.randn(3), torch.rand(3), torch.randn(3), torch.rand(3)]
    args = [torch.randn_like(x), x, weight, *stats]
    return make_fx(backward)(*args), args


def running(module: torch.fx.GraphModule) -> list[object]:
    (node,) = module.graph.find_nodes(op="call_function", target=BACKWARD)
    return list(node.args[3:5])


def test_training_reads_no_running_statistics() -> None:
    module, args = traced(training=True)
    before = module(*args)
    drop_unread(module.graph)
    module.recompile()
    assert running(module) == [None, None]
    assert all(map(torch.equal, module(*args), before))


def test_evaluation_reads_them() -> None:
    module, _ = traced(training=False)
    drop_unread(module.graph)
    assert None not in running(module)


def test_a_trained_net_saves_no_running_statistics() -> None:
    import fxremat

    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    ours = fxremat.backend(1.0, inner="eager")
    torch.compile(net, backend=ours)(torch.randn(2, 3, 8, 8)).sum().backward()
    (plan,) = ours.plans
    # convolution output, its mean and scale, and the result of relu, which flatten holds
    assert len(plan.saved) <= 4
