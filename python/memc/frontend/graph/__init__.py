# SPDX-License-Identifier: Apache-2.0
"""Dataflow graphs of other frameworks, as JSON: ops with names that memc need not know, on tensors in storages."""

from .importer import import_graph
from .read import Graph, GraphOp, GraphTensor, graph_of, read_graph

__all__ = ["Graph", "GraphOp", "GraphTensor", "graph_of", "import_graph", "read_graph"]
