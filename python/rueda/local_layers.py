"""Layers whose weights stay each rank's own, as the front ends of TensorFlow and Keras take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

NOT_BUILT = (
    "{caller}: layer {layer} is not built: build the model (give it an Input, or call it once) before "
    "{caller}, because it has no weights yet."
)


def layers_of(local_layers: Any, kind: type, kind_name: str, caller: str) -> list[Any]:
    """One layer, several or None as a list.

    kind: the layer class of the Keras in use. kind_name: what messages call it. Raises ValueError for
    anything but a layer, and for a layer that has not made its weights yet.
    """
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, Iterable) and not isinstance(layers, kind) else [layers]
    if not all(isinstance(layer, kind) for layer in layers):
        raise ValueError(f"All local layers must be of {kind_name} type.")
    for layer in layers:
        if not layer.built:
            raise ValueError(NOT_BUILT.format(caller=caller, layer=layer.name))
    return layers
