# SPDX-License-Identifier: Apache-2.0
"""What is trained: small tasks on data that Debian ships, each with a fixed split of training and test data.

A task has `steps`, `batch` (samples per step over all ranks), `num_samples`, `momentum` (None if its optimiser has
none that could move into a hook), `build(seed)`, `optimizer(model, momentum)`, `loss(model, indices)` and
`quality(model)`, in percent: more is better, and one percent is one point of the acceptance criteria.
"""
import math
import pathlib
import re

import numpy
import torch
from torch import nn
from torch.nn import functional

SPLIT_SEED = 20240117
LICENCES = ["Artistic", "GFDL-1.3", "GPL-1", "GPL-2", "GPL-3", "LGPL-2.1", "LGPL-3"]


class Digits:
    """scikit-learn's 1797 handwritten digits of 8 x 8 pixels, half of them for the test; quality is the accuracy."""
    steps, batch, momentum = 300, 64, 0.9

    def __init__(self):
        from sklearn.datasets import load_digits
        digits = load_digits()
        order = numpy.random.RandomState(SPLIT_SEED).permutation(len(digits.target))
        inputs = torch.tensor(digits.data[order] / 16.0, dtype=torch.float32)
        labels = torch.tensor(digits.target[order], dtype=torch.int64)
        self.num_samples = len(order) // 2
        self.inputs, self.test_inputs = inputs[:self.num_samples], inputs[self.num_samples:]
        self.labels, self.test_labels = labels[:self.num_samples], labels[self.num_samples:]

    def loss(self, model, indices):
        return functional.cross_entropy(model(self.inputs[indices]), self.labels[indices])

    def quality(self, model):
        with torch.no_grad():
            return (model(self.test_inputs).argmax(dim=1) == self.test_labels).double().mean().item() * 100


class DigitsMlp(Digits):
    def build(self, seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def optimizer(self, model, momentum):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


class DigitsCnn(Digits):
    def build(self, seed):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, 10))

    def optimizer(self, model, momentum):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)


class Text:
    """The licences of /usr/share/common-licenses as numbered symbols; each tenth piece of the text is for the test.

    Quality is what a model saves when the test text is coded with it, in percent of a code that knows nothing:
    100 * (1 - cross entropy / ln(symbols)). Unlike the accuracy, it also sees what happens to rare symbols.
    """
    pattern, piece, context = None, None, None

    def __init__(self):
        folder = pathlib.Path("/usr/share/common-licenses")
        text = "\n".join((folder / name).read_text(encoding="utf-8", errors="replace") for name in LICENCES)
        found = re.findall(self.pattern, text.lower(), re.DOTALL)
        code = {symbol: number for number, symbol in enumerate(sorted(set(found)))}
        codes = torch.tensor([code[symbol] for symbol in found])
        pieces = codes[:len(codes) // self.piece * self.piece].view(-1, self.piece)
        is_test = torch.arange(len(pieces)) % 10 == 9
        self.symbols = len(code)
        windows = pieces.unfold(1, self.context + 1, 1)  # a window lies within its piece
        self.windows = windows[~is_test].reshape(-1, self.context + 1)
        self.num_samples = len(self.windows)
        self.test_windows = self.windows_for_test(windows[is_test])

    def loss(self, model, indices):
        return self.cross_entropy(model, self.windows[indices])

    def quality(self, model):
        with torch.no_grad():
            nats = [self.cross_entropy(model, part) * len(part) for part in self.test_windows.split(512)]
        return 100 * (1 - sum(nats).item() / len(self.test_windows) / math.log(self.symbols))


class Words(Text):
    """The next word after four. Few words are frequent and most are rare, so a row of the output layer has either a
    large gradient or one that is small but always points down; rows of both kinds share blocks."""
    steps, batch, momentum = 300, 128, None
    pattern, piece, context = r"[a-z]+|[.,;()]", 256, 4

    def windows_for_test(self, windows):
        return windows.reshape(-1, self.context + 1)

    def build(self, seed):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Embedding(self.symbols, 16), nn.Flatten(), nn.Linear(16 * self.context, 32), nn.ReLU(),
            nn.Linear(32, self.symbols))

    def optimizer(self, model, momentum):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def cross_entropy(self, model, windows):
        return functional.cross_entropy(model(windows[:, :-1]), windows[:, -1])


class Attention(nn.Module):
    """Pre-norm causal self-attention and a feed-forward network, both added to their input."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(),
                                 nn.Linear(4 * width, width))
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1), persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + self.mask
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self, symbols, context, width=32):
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.layer, self.norm, self.head = Attention(width, 2, context), nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, text):
        return self.head(self.norm(self.layer(self.symbols(text) + self.places.weight)))


class Characters(Text):
    """The next character at each of 32 places, with a small transformer."""
    steps, batch, momentum = 300, 32, None
    pattern, piece, context = ".", 1024, 32

    def windows_for_test(self, windows):
        return windows[:, ::self.context].reshape(-1, self.context + 1)

    def build(self, seed):
        torch.manual_seed(seed)
        return Transformer(self.symbols, self.context)

    def optimizer(self, model, momentum):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def cross_entropy(self, model, windows):
        return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


TASKS = {"mlp": DigitsMlp, "cnn": DigitsCnn, "words": Words, "characters": Characters}
