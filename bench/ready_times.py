"""When the gradients of the models in bench/models are ready, by the multiply-adds of backward.

    python bench/ready_times.py           # writes "ready_ms" into bench/models/*.json
    python bench/ready_times.py --check   # fails if a file says something else

The rule:

* A step computes for `compute_ms`. Forward is a third of it, because backward computes two gradients,
  that of a layer's input and that of its weights, and each takes as many multiply-adds as forward. On a
  GTX 1080 Ti forward took 31 to 34 % of VGG-16, ResNet-101, VGG-19 and Inception-V1
  (github.com/jcjohnson/cnn-benchmarks).
* Backward goes through the layers in the reverse of their order and takes for each what its multiply-adds
  are of all. A convolution takes the elements of its weights times the positions of its output (He et al.
  2015, table 1, counts so), a linear layer its elements times the tokens, or once; a normalization and a
  bias likewise, which is next to nothing. Looking up an embedding multiplies nothing.
* What computes without parameters counts too: the scores and sums of attention (tokens x tokens x width,
  twice a layer), and the output layer of GPT-2, whose weights are those of the token embedding.
* The layer that reads the images needs no gradient of its input, so its backward costs half.
* The tensors of a layer (weight and bias) are ready together, at its end.

Real kernels do not take times in proportion to multiply-adds: a normalization waits for memory, and a
layer of few channels does not fill a GPU. `rueda timeline workload` measures a real step.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

MODELS = Path(__file__).resolve().parent / "models"
FORWARD = 1 / 3  # of a step
SOURCE = "multiply-adds of backward, layer by layer (bench/ready_times.py)"
LINE = 100  # characters of a line of numbers


class Shapes(NamedTuple):
    """What the sizes of the parameters do not tell."""

    positions: Callable[[str], int]  # of a layer's output: by how many each of its weights is multiplied
    first: str = ""  # the layer that reads images
    before: Callable[[str], float] = lambda layer: 0  # multiply-adds without parameters, behind that layer


def layer_of(tensor: str) -> str:
    return tensor.rpartition(".")[0]


# ---- images: positions are those of a square; torchvision defines the models ----


def resnet(layer: str) -> int:
    """224 x 224. The stride of a stage is in the second convolution of its first block."""
    stage = re.match(r"layer(\d)\.(\d+)\.(\w+)", layer)
    if not stage:
        return 1 if layer == "fc" else 112**2
    number, block, part = int(stage[1]), int(stage[2]), stage[3]
    is_before_stride = number > 1 and block == 0 and part in ("conv1", "bn1")
    return (112 // 2**number * (2 if is_before_stride else 1)) ** 2


VGG16_SIDES = {224: (0, 2), 112: (5, 7), 56: (10, 12, 14), 28: (17, 19, 21), 14: (24, 26, 28)}
VGG19_SIDES = {224: (0, 2), 112: (5, 7), 56: (10, 12, 14, 16), 28: (19, 21, 23, 25), 14: (28, 30, 32, 34)}


def vgg(sides: Dict[int, Tuple[int, ...]]) -> Callable[[str], int]:
    def positions(layer: str) -> int:
        kind, number = layer.split(".")
        if kind == "classifier":
            return 1
        return next(side**2 for side, layers in sides.items() if int(number) in layers)

    return positions


# 224 x 224, the longest prefix counts.
GOOGLENET_SIDES = {"conv1": 112, "conv": 56, "inception_3": 28, "inception_4": 14, "inception_5": 7, "fc": 1}


def googlenet(layer: str) -> int:
    return GOOGLENET_SIDES[max((p for p in GOOGLENET_SIDES if layer.startswith(p)), key=len)] ** 2


# 299 x 299, the longest prefix counts. Reductions have their last convolution behind the stride.
INCEPTION_SIDES = {
    "Conv2d_1a": 149,
    "Conv2d_2a": 147,
    "Conv2d_2b": 147,
    "Conv2d_3b": 73,
    "Conv2d_4a": 71,
    "Mixed_5": 35,
    "Mixed_6": 17,
    "Mixed_6a.branch3x3dbl_1": 35,
    "Mixed_6a.branch3x3dbl_2": 35,
    "Mixed_7": 8,
    "Mixed_7a.branch3x3_1": 17,
    "Mixed_7a.branch7x7x3_1": 17,
    "Mixed_7a.branch7x7x3_2": 17,
    "Mixed_7a.branch7x7x3_3": 17,
    "AuxLogits.conv0": 5,
    "AuxLogits.conv1": 1,
    "AuxLogits.fc": 1,
    "fc": 1,
}


def inception(layer: str) -> int:
    return INCEPTION_SIDES[max((p for p in INCEPTION_SIDES if layer.startswith(p)), key=len)] ** 2


# ---- text: positions are tokens; batches as in "compute_source" ----

WIDTH = 768
BERT_TOKENS, GPT2_TOKENS, GPT2_WORDS, LSTM_TOKENS = 128, 1024, 50257, 35


def bert(layer: str) -> int:
    if re.match(r"embeddings\.\w+_embeddings", layer):
        return 0
    return 1 if layer.startswith("pooler") else BERT_TOKENS


def gpt2(layer: str) -> int:
    return 0 if layer in ("wte", "wpe") else GPT2_TOKENS


def lstm(layer: str) -> int:
    """Layer by layer: backward goes through all tokens of a layer before it comes to the one below."""
    return 0 if layer == "embedding" else LSTM_TOKENS


def attention(tokens: int) -> float:
    return 2.0 * tokens * tokens * WIDTH


def before_in_bert(layer: str) -> float:
    return attention(BERT_TOKENS) if layer.endswith("attention.self.value") else 0


def before_in_gpt2(layer: str) -> float:
    if layer == "ln_f":
        return float(GPT2_TOKENS * WIDTH * GPT2_WORDS)
    return attention(GPT2_TOKENS) if layer.endswith("attn.c_attn") else 0


SHAPES: Dict[str, Shapes] = {
    "resnet50": Shapes(resnet, "conv1"),
    "resnet101": Shapes(resnet, "conv1"),
    "vgg16": Shapes(vgg(VGG16_SIDES), "features.0"),
    "vgg19": Shapes(vgg(VGG19_SIDES), "features.0"),
    "googlenet": Shapes(googlenet, "conv1"),
    "inception_v3": Shapes(inception, "Conv2d_1a_3x3.conv"),
    "bert_base": Shapes(bert, before=before_in_bert),
    "gpt2": Shapes(gpt2, before=before_in_gpt2),
    "lstm_large": Shapes(lstm),
}

# ---- from multiply-adds to milliseconds ----


def layers_of(model: Dict[str, Any]) -> Iterator[Tuple[str, List[int]]]:
    """Each layer in the order of backward, and the elements of its tensors."""
    layer, counts = layer_of(model["parameters"][0][0]), []
    for tensor, count in model["parameters"]:
        if layer_of(tensor) != layer:
            yield layer, counts
            layer, counts = layer_of(tensor), []
        counts.append(count)
    yield layer, counts


def multiply_adds(model: Dict[str, Any]) -> float:
    """Of the forward pass, for one image or sequence."""
    shapes = SHAPES[model["name"]]
    return sum(
        sum(counts) * shapes.positions(layer) + shapes.before(layer) for layer, counts in layers_of(model)
    )


def ready_ms(model: Dict[str, Any]) -> List[float]:
    """For each tensor when its gradient is ready, from the beginning of a step."""
    shapes = SHAPES[model["name"]]
    ends, done = [], 0.0
    for layer, counts in layers_of(model):
        gradients = 1 if layer == shapes.first else 2
        done += gradients * sum(counts) * shapes.positions(layer) + 2 * shapes.before(layer)
        ends += [done] * len(counts)
    compute, forward = model["compute_ms"], FORWARD * model["compute_ms"]
    return [max(0.001, round(forward + (compute - forward) * end / done, 3)) for end in ends]


def text_of(model: Dict[str, Any]) -> str:
    """One line for each tensor, and as many times in a line as fit."""
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in model.items()]
    tensors = ",\n".join("  " + json.dumps(entry) for entry in model["parameters"])
    times = textwrap.fill(
        ", ".join(f"{ms:g}" for ms in model["ready_ms"]), LINE, initial_indent="  ", subsequent_indent="  "
    )
    for at, key in enumerate(model):
        if key == "parameters":
            lines[at] = f' "parameters": [\n{tensors}\n ]'
        if key == "ready_ms":
            lines[at] = f' "ready_ms": [\n{times}\n ]'
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file says something else")
    is_check = parser.parse_args().check
    others = []
    for path in sorted(MODELS.glob("*.json")):
        model = json.loads(path.read_text())
        if model["name"] not in SHAPES:
            raise SystemExit(f"ready_times: {path} is of a model without shapes; add them to SHAPES")
        model.update(ready_source=SOURCE, ready_ms=ready_ms(model))
        text = text_of(model)
        if is_check and text != path.read_text():
            others.append(path.name)
        if not is_check:
            path.write_text(text)
    if others:
        print(f"ready_times: {', '.join(others)} differ; run python bench/ready_times.py", file=sys.stderr)
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
