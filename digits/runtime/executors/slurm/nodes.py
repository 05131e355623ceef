"""The nodes and partitions of a Slurm cluster, from the text that its commands print."""

from __future__ import annotations

import re
from collections.abc import Callable

from digits.runtime.executors.cluster import Node, Overview, Unreachable


def overview(ask: Callable[..., str]) -> Overview:
    """Return the nodes and partitions, with ``ask`` to call commands; raises Unreachable."""
    try:
        nodes = ask("scontrol", "--oneliner", "--detail", "show", "node")
        partitions = ask("sinfo", "--noheader", "--format=%P")
    except Unreachable as error:
        raise Unreachable(f"Slurm does not answer: {error}.") from error
    names = [line.strip() for line in partitions.splitlines() if line.strip()]
    return Overview(
        nodes=tuple(parse_node(line) for line in nodes.splitlines() if line.startswith("NodeName=")),
        partitions=tuple(name.rstrip("*") for name in sorted(names, key=lambda name: not name.endswith("*"))),
    )


def parse_node(line: str) -> Node:
    """Return the node in a line of ``scontrol --oneliner --detail show node``."""
    fields = dict(re.findall(r"(?:^|\s)([A-Za-z]\w*)=(\S*)", line))
    reason = re.search(r"\sReason=(.*?)(?: \[[^\]]*\])?\s*(?:\w+=|$)", line)
    memory = fields.get("RealMemory", "")
    return Node(
        name=fields.get("NodeName", ""),
        state=fields.get("State", "unknown").lower(),
        cpus=_number(fields.get("CPUTot", "")),
        cpus_used=_number(fields.get("CPUAlloc", "")),
        gpus=_gpus(fields.get("Gres", "")),
        gpus_used=_gpus(fields.get("GresUsed", "")),
        memory_mb=int(memory) if memory.isdecimal() else None,
        reason=reason[1] if reason else "",
    )


def _gpus(gres: str) -> int:
    """Return the number of GPUs in a list such as ``gpu:a100:4(S:0-1),gpu:2(IDX:0-1)``."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    counts = (re.fullmatch(r"gpu(?::[^:]*?)??(?::(\d+))?", item) for item in plain.split(","))
    return sum(int(count[1] or 1) for count in counts if count)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
