"""A plan for XDP as a source tree: ``kernel/`` and ``user/``."""

from __future__ import annotations

from cora.backends.xdp.emit import kernel_tree
from cora.backends.xdp.user.tree import user_folder
from cora.build.request import BuildRequest
from cora.build.tree import SourceTree
from cora.emit.bpf import file_stem


def build(request: BuildRequest) -> SourceTree:
    """The folders of both halves.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE` for what the kernel cannot hold or run, `Kind.ENGINE_LIMIT` for what the user
            half does not take.
    """
    split = request.split
    user = SourceTree(user_folder(split, request.config, request.plan.digest(), file_stem(split)))
    return kernel_tree(request).plus(user.under(split.parts[-1].place))
