"""A mixture of experts: Switch-Base (Fedus et al. 2021, table 9).

12 layers of an encoder and 12 of a decoder, 768 wide, 12 heads of 64, feed-forward layers of 2048 with
GEGLU (three matrices), 32,128 words; every second feed-forward layer has 128 experts, of which a token
visits one. Experts live on some of the GPUs, so their gradients are not summed over all. Everything else
is: 167 of 7,400 million parameters. In each sparse layer an alltoall brings the tokens to their experts, and
another one brings them back; backward does the same with their gradients.

Ready times follow the rule of bench/ready_times.py: forward is a third of a step, and backward takes for
each layer what its multiply-adds are of all, experts included. Sequences have 512 tokens for the encoder
and 114 for the decoder, as T5 was trained (github.com/google-research/text-to-text-transfer-transformer,
random_spans_helper). Experts are spread evenly over all GPUs, and so are the tokens, in bfloat16.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

WIDTH, INNER, EXPERTS, WORDS, LAYERS = 768, 2048, 128, 32128, 12
TOKENS = {"encoder": 512, "decoder": 114}
# 124e9 operations for a sequence, forward (table 9), and twice as many backward.
OPERATIONS = 3 * 124e9

# Layers in the order of forward: the tensors, and multiply-adds of a sequence.
Layer = Tuple[List[Tuple[str, int]], float]


def attention(name: str, queries: int, keys: int) -> Layer:
    tensors = [(f"{name}.{part}", WIDTH * WIDTH) for part in "qkvo"]
    projected = WIDTH * WIDTH * 2 * (queries + keys)
    return [*tensors, (f"{name}.norm", WIDTH)], projected + 2.0 * queries * keys * WIDTH


def feed_forward(name: str, tokens: int, is_sparse: bool) -> Layer:
    dense = [(f"{name}.{part}", WIDTH * INNER) for part in ("gate", "up", "down")]
    router = [(f"{name}.router", WIDTH * EXPERTS)]
    return [*(router if is_sparse else dense), (f"{name}.norm", WIDTH)], 3.0 * WIDTH * INNER * tokens


def layers() -> List[Layer]:
    found: List[Layer] = []
    encoder, decoder = TOKENS["encoder"], TOKENS["decoder"]
    for stack, tokens in TOKENS.items():
        for layer in range(LAYERS):
            name = f"{stack}.{layer}"
            found.append(attention(f"{name}.attention", tokens, tokens))
            if stack == "decoder":
                found.append(attention(f"{name}.cross", decoder, encoder))
            found.append(feed_forward(f"{name}.feed_forward", tokens, layer % 2 == 1))
        found.append(([(f"{stack}.norm", WIDTH)], 0))
    found.append(([], float(decoder * WIDTH * WORDS)))  # the output layer is the embedding
    return found


def exchanges(compute_ms: float, sequences: int) -> List[Dict[str, Any]]:
    """The alltoalls of a step in their order, as models of `rueda simulate` have them. Computing waits."""
    whole = sum(work for _, work in layers())
    done, found = 0.0, []
    for names, work in layers():
        begin, end = done / whole, (done + work) / whole
        done += work
        stack, layer, part = (*names[0][0].split("."), "", "")[:3] if names else ("", "", "")
        if part != "feed_forward" or int(layer) % 2 == 0:
            continue
        elements = sequences * TOKENS[stack] * WIDTH // 2  # two of bfloat16 are one of float32
        forward, backward = compute_ms / 3, 2 * compute_ms / 3
        moments = {
            "to": forward * begin,
            "from": forward * end,
            "to.backward": forward + backward * (1 - end),
            "from.backward": forward + backward * (1 - begin),
        }
        for way, at_ms in moments.items():
            name = f"{stack}.{layer}.{way}"
            found.append({"name": name, "operation": "alltoall", "elements": elements, "at_ms": at_ms})
    return sorted(found, key=lambda one: float(one["at_ms"]))


def tensors(compute_ms: float) -> List[Tuple[str, int, float]]:
    """Name, elements and ready time of each shared tensor, in the order of backward."""
    whole = sum(work for _, work in layers())
    done, found = 0.0, []
    for names, work in reversed(layers()):
        done += work
        ready = round(compute_ms * (1 + 2 * done / whole) / 3, 4)
        found += [(name, elements, ready) for name, elements in reversed(names)]
    return [*found, ("embedding", WORDS * WIDTH, compute_ms)]
