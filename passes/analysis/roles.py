"""The role of every node of a joint graph, and whose storage its tensor lives in."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import torch
from torch import fx
from torch.types import py_sym_types

from passes.node_utils import is_tangent, mutated_arguments, tensors_in
from passes.torch_internals import impure, only_views, storage_key

__all__ = ["Role", "roles_of"]


class Role(StrEnum):
    """What a node is to the pass."""

    INPUT = "input"
    TANGENT = "tangent"
    OP = "op"
    ITEM = "item"
    VIEW = "view"
    SIZE = "size"
    CONSTANT = "constant"
    OUTPUT = "output"


def roles_of(
    graph: fx.Graph,
) -> tuple[dict[str, Role], dict[str, str], dict[str, tuple[torch.Tensor, ...]]]:
    """Roles of nodes, storages of tensors, and what ops yield that no node takes out, by name."""
    roles: dict[str, Role] = {}
    storages: dict[str, str] = {}
    spare: dict[str, tuple[torch.Tensor, ...]] = {}
    owner: dict[int, str] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if only_views(node) and (base := storages.get(node.all_input_nodes[0].name)):
            for tensor in tensors_in(value):
                owner.setdefault(storage_key(tensor), base)
        roles[node.name] = role = _role(node, value, roles, owner)
        if isinstance(value, torch.Tensor) and role is not Role.OUTPUT:
            storages[node.name] = owner.setdefault(storage_key(value), node.name)
        elif role is Role.OP:
            spare[node.name] = _spare(node, value, owner)
    return roles, storages, spare


def _role(node: fx.Node, value: Any, roles: dict[str, Role], owner: dict[int, str]) -> Role:
    if node.op == "placeholder":
        if not isinstance(value, torch.Tensor):
            return Role.SIZE if isinstance(value, torch.SymInt) else Role.CONSTANT
        return Role.TANGENT if is_tangent(node) else Role.INPUT
    if node.op == "get_attr":
        return Role.INPUT if isinstance(value, torch.Tensor) else Role.CONSTANT
    if node.op == "output":
        return Role.OUTPUT
    if isinstance(value, py_sym_types):
        return Role.SIZE
    tensors = tensors_in(value)
    if mutated_arguments(node) or not tensors:
        return Role.OP
    known = all(storage_key(t) in owner for t in tensors)
    if node.target is operator.getitem:
        source = node.args[0]
        if isinstance(source, fx.Node) and roles[source.name] in (Role.OP, Role.ITEM):
            return Role.ITEM
        return Role.VIEW
    return Role.VIEW if known and not impure(node) else Role.OP


def _spare(node: fx.Node, value: Any, owner: dict[int, str]) -> tuple[torch.Tensor, ...]:
    taken = {storage_key(item.meta["val"]) for item in _tensor_items(node)}
    return tuple(t for t in tensors_in(value) if storage_key(t) not in taken | owner.keys())


def _tensor_items(node: fx.Node) -> Iterator[fx.Node]:
    """Tensors taken out of what a node yields, out of tuples in tuples as well."""
    for user in node.users:
        if user.target is operator.getitem:
            tensor = isinstance(user.meta.get("val"), torch.Tensor)
            yield from [user] if tensor else _tensor_items(user)
