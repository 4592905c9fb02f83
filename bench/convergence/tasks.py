"""What the convergence check learns: Fashion-MNIST by a small CNN, and English text by a small transformer.

A task gives each rank its model, its optimizer, its share of the batches, and the figure that is compared.
Everything follows from the seed, alike for every method.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

import rueda.torch as hvd

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "pytorch"))
import fashion_mnist  # noqa: E402 (found beside the examples)


class Fashion:
    """The model and the data of examples/pytorch/fashion_mnist.py; its figure is test accuracy in percent."""

    def __init__(self, args: Any) -> None:
        self._args = args
        self._train = [part[: args.images] for part in fashion_mnist.load(args.data, "train")]
        per_rank = len(self._train[0]) // hvd.size()
        self.steps = args.epochs * -(-per_rank // args.batch_size)

    def model(self) -> nn.Module:
        model: nn.Module = fashion_mnist.make_model()
        return model.to(memory_format=torch.channels_last)  # a third faster on CPUs

    def optimizer(self, model: nn.Module, is_together: bool) -> torch.optim.Optimizer:
        """Where gradients of all ranks are averaged, the learning rate grows with the ranks."""
        lr = self._args.lr * hvd.size() if is_together else self._args.local_lr
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def rate(self, step: int) -> float:
        """The learning rate of a step as a part of the first: it falls linearly."""
        return 1.0 - 0.95 * step / self.steps

    def losses(self, model: nn.Module) -> Iterator[Callable[[], Tensor]]:
        images, labels = self._train
        for epoch in range(self._args.epochs):
            order = 1000 * self._args.seed + epoch
            for index in fashion_mnist.my_batches(len(images), self._args.batch_size, order):
                yield lambda index=index: functional.cross_entropy(model(images[index]), labels[index])

    def figure(self, model: nn.Module) -> float:
        return 100 * fashion_mnist.accuracy(model, fashion_mnist.load(self._args.data, "t10k"))


LETTERS = 128  # ASCII; what is not, is left out
WIDTH, LAYERS, HEADS, CONTEXT = 256, 4, 4, 64


class Transformer(nn.Module):
    """Predicts the next letter: 3.2 million parameters, layer norm first, no dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))
        for embedding in (self.letters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Scores [batch, length, LETTERS]. text: letters, [batch, length]."""
        length = text.shape[1]
        x = self.letters(text) + self.places.weight[:length]
        scores: Tensor = self.out(self.layers(x, mask=self.mask[:length, :length], is_causal=True))
        return scores


def read_text(folder: Path) -> Tensor:
    """The text of all HTML pages of a folder, as letters."""
    pages = sorted(folder.glob("*.html"))
    if not pages:
        raise SystemExit(f"{folder} has no *.html: apt install anarchism, or pass --data FOLDER.")
    bare = (re.sub(r"<[^>]*>", " ", page.read_text(errors="replace")) for page in pages)
    text = " ".join(re.sub(r"\s+", " ", html.unescape(page)) for page in bare)
    return torch.frombuffer(bytearray(text.encode("ascii", "ignore")), dtype=torch.uint8).long()


class Text:
    """Letters of English text. Its figure is the loss of letters in the last 5 % of the text, in nats."""

    def __init__(self, args: Any) -> None:
        self._args = args
        text = read_text(args.data)
        cut = len(text) * 19 // 20
        self._train, self._test = text[:cut], text[cut:]
        self.steps = args.steps

    def model(self) -> nn.Module:
        return Transformer()

    def optimizer(self, model: nn.Module, is_together: bool) -> torch.optim.Optimizer:
        if self._args.optimizer == "sgd":
            return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)

    def rate(self, step: int) -> float:
        """Grows for 100 steps, then falls linearly to a tenth."""
        return min(1.0, (step + 1) / 100) * (1.0 - 0.9 * step / self.steps)

    def _windows(self, text: Tensor, starts: Tensor) -> Tensor:
        return text[starts[:, None] + torch.arange(CONTEXT + 1)]

    def _loss(self, model: nn.Module, windows: Tensor) -> Tensor:
        scores = model(windows[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())

    def losses(self, model: nn.Module) -> Iterator[Callable[[], Tensor]]:
        draw = torch.Generator().manual_seed(self._args.seed)
        shape, last = (hvd.size(), self._args.sequences), len(self._train) - CONTEXT - 1
        for _ in range(self.steps):
            starts = torch.randint(last, shape, generator=draw)[hvd.rank()]
            yield lambda starts=starts: self._loss(model, self._windows(self._train, starts))

    @torch.no_grad()
    def figure(self, model: nn.Module) -> float:
        """Over 2,048 windows at equal distances, of which each rank takes its part."""
        model.eval()
        starts = torch.linspace(0, len(self._test) - CONTEXT - 1, 2048).long()[hvd.rank() :: hvd.size()]
        losses = [self._loss(model, self._windows(self._test, some)) * len(some) for some in starts.split(64)]
        totals = torch.tensor([float(sum(losses)), float(len(starts))])
        totals = hvd.allreduce(totals, op=hvd.Sum, name="figure")
        return float(totals[0] / totals[1])


TASKS = {"fashion": Fashion, "text": Text}
