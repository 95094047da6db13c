"""One derivative rule for each operation, and reverse accumulation over an expression graph.

A rule gets the node `y`, and the gradient `d` that arrives at it, and returns one gradient for each argument. Rules use the
operation's own output where they can, so that saved outputs are enough for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prnn.cells.expr import Expr, add, const, div, greater, leaf, mul, neg, sub, topological

HALF = const(0.5)

Rule = Callable[[Expr, Expr], tuple[Expr, ...]]


def _maximum(y: Expr, d: Expr) -> tuple[Expr, ...]:
    a, b = y.args
    share = mul(HALF, add(const(1.0), sub(greater(a, b), greater(b, a))))  # 1, 0, or 1/2 in a tie
    return mul(d, share), mul(d, sub(const(1.0), share))


RULES: dict[str, Rule] = {
    "add": lambda y, d: (d, d),
    "sub": lambda y, d: (d, neg(d)),
    "mul": lambda y, d: (mul(d, y.args[1]), mul(d, y.args[0])),
    "div": lambda y, d: (div(d, y.args[1]), neg(div(mul(d, y), y.args[1]))),
    "neg": lambda y, d: (neg(d),),
    "exp": lambda y, d: (mul(d, y),),
    "log": lambda y, d: (div(d, y.args[0]),),
    "sqrt": lambda y, d: (div(mul(d, HALF), y),),
    "sigmoid": lambda y, d: (mul(d, mul(y, sub(const(1.0), y))),),
    "tanh": lambda y, d: (mul(d, sub(const(1.0), mul(y, y))),),
    "relu": lambda y, d: (mul(d, greater(y, const(0.0))),),
    "maximum": _maximum,
    # The recurrent matrix times a vector; the transposed product is formed outside the expression.
    "product": lambda y, d: (leaf("d_operand", y.value),),
}


def gradients(seeds: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    """The gradient of sum(seed * root) with respect to every node below the roots.

    Args:
        seeds: root -> gradient that arrives at it.

    Returns:
        node -> gradient, for the roots, the inner nodes and the leaves that have one.
    """
    total: dict[Expr, Expr] = {}
    for root, seed in seeds.items():
        total[root] = add(total[root], seed) if root in total else seed
    for node in reversed(topological(seeds)):
        rule = RULES.get(node.op)
        if rule is None or node not in total:
            continue
        for arg, grad in zip(node.args, rule(node, total[node])):
            if arg.op != "const":
                total[arg] = add(total[arg], grad) if arg in total else grad
    return total
