"""Models of Hugging Face, made small from their configurations: no weights are loaded.

Both libraries are imported when a model is made, so the rest runs without them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FLAGGED", "Case", "bert", "diffusion", "flagged", "llama", "vit"]

Case = tuple[nn.Module, tuple[Tensor, ...]]  # a module that gives a scalar loss, and its arguments
WIDTH = 256
FLAGGED = ("llama", "bert", "vit", "diffusion")  # families with a flag for checkpointing


class Labelled(nn.Module):
    """A model of transformers called as (inputs, labels); it gives its own loss."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.network(inputs, labels=labels).loss
        return loss


class Diffusion(nn.Module):
    """A denoiser of diffusers: it predicts the noise that was added at the given steps."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, steps: Tensor, noise: Tensor) -> Tensor:
        return functional.mse_loss(self.network(images + noise, steps).sample, noise)


def _transformer(family: str, task: str, **sizes: Any) -> Labelled:
    """A model of transformers with four layers of four heads, from its configuration."""
    import transformers

    shared = {"hidden_size": WIDTH, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = getattr(transformers, f"{family}Config")(**shared, **sizes)
    return Labelled(getattr(transformers, f"{family}For{task}")(config))


def _text(family: str, task: str, **sizes: Any) -> Case:
    """A model that reads random words and gives them back."""
    text = torch.randint(1000, (4, 256))
    network = _transformer(family, task, vocab_size=1000, max_position_embeddings=256, **sizes)
    return network, (text, text)


def llama() -> Case:
    """A decoder with rotary positions, RMS norms and gated layers."""
    return _text("Llama", "CausalLM", intermediate_size=11 * WIDTH // 4, use_cache=False)


def bert() -> Case:
    """An encoder that fills in words; without dropout, so that its gradients can be compared."""
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return _text("Bert", "MaskedLM", intermediate_size=4 * WIDTH, **without)


def vit() -> Case:
    """A transformer over patches of images."""
    sizes = {"intermediate_size": 4 * WIDTH, "image_size": 64, "patch_size": 4, "num_labels": 10}
    images, classes = torch.randn(8, 3, 64, 64), torch.randint(10, (8,))
    return _transformer("ViT", "ImageClassification", **sizes), (images, classes)


def diffusion() -> Case:
    """A denoising UNet with attention at its lowest resolution."""
    from diffusers import UNet2DModel

    network = UNet2DModel(
        sample_size=32,
        block_out_channels=(16, 32, 64),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=8,
    )
    images, noise = torch.randn(12, 3, 32, 32), torch.randn(12, 3, 32, 32)
    return Diffusion(network), (images, torch.randint(1000, (12,)), noise)


def flagged(module: nn.Module) -> bool:
    """Set the library's own flag for checkpointing; False if the model has none."""
    network: Any = getattr(module, "network", None)
    if hasattr(network, "gradient_checkpointing_enable"):
        network.gradient_checkpointing_enable({"use_reentrant": False})
    elif hasattr(network, "enable_gradient_checkpointing"):
        network.enable_gradient_checkpointing()
    else:
        return False
    return True
