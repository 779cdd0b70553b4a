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


def _sizes(width: int) -> dict[str, Any]:
    """What configurations of transformers call alike; heads of 64 features."""
    return {
        "hidden_size": width,
        "num_hidden_layers": 4,
        "num_attention_heads": width // 64,
    }


def llama(width: int = 256, length: int = 256, batch: int = 4, words: int = 1000) -> Case:
    """A decoder with rotary positions, RMS norms and gated layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **_sizes(width),
        vocab_size=words,
        intermediate_size=11 * width // 4,
        max_position_embeddings=length,
        use_cache=False,
    )
    text = torch.randint(words, (batch, length))
    return Labelled(LlamaForCausalLM(config)), (text, text)


def bert(width: int = 256, length: int = 256, batch: int = 4, words: int = 1000) -> Case:
    """An encoder that fills in words; without dropout, so that its gradients can be compared."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        **_sizes(width),
        vocab_size=words,
        intermediate_size=4 * width,
        max_position_embeddings=length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    text = torch.randint(words, (batch, length))
    return Labelled(BertForMaskedLM(config)), (text, text)


def vit(width: int = 256, batch: int = 8, size: int = 64) -> Case:
    """A transformer over patches of images."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(  # type: ignore[call-arg] # num_labels is of its base class
        **_sizes(width),
        intermediate_size=4 * width,
        image_size=size,
        patch_size=4,
        num_labels=10,
    )
    images, classes = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return Labelled(ViTForImageClassification(config)), (images, classes)


def diffusion(width: int = 16, batch: int = 12, size: int = 32) -> Case:
    """A denoising UNet with attention at its lowest resolution."""
    from diffusers import UNet2DModel

    network = UNet2DModel(
        sample_size=size,
        block_out_channels=(width, 2 * width, 4 * width),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=8,
    )
    images, noise = torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size)
    return Diffusion(network), (images, torch.randint(1000, (batch,)), noise)


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
