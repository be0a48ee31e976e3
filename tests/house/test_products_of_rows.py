"""No product of matrices on private rows where its rounding counts: what a record adds depends on
that record alone.

Libraries for matrices round a row by how many others there are, and how: a count, a kinked slope or
a rounded score of one record would then move with another. Rows are multiplied by
``core.block_products`` and compiled kernels, one by one. Every other product in the library is
listed here with the reason why it may be one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dpconvex

SOURCE = Path(dpconvex.__file__).parent
CALLS = {
    "dot",
    "einsum",
    "inner",
    "matmul",
    "matvec",
    "multi_dot",
    "tensordot",
    "vdot",
    "vecdot",
    "vecmat",
}

PUBLIC = "public or released numbers: nothing of a row"
SUM = "a sum over rows of what each of them adds: its term pays for the rounding of sums"
EXACT = "a sum of row weights: they lie on a grid on which sums are exact"
ALONE = "one record at a time, whatever the others are"
CERTIFIED = "part of a minimiser whose certified gap includes rounding: the gap is paid for"

#: Rooms and files in which every product is for one reason.
ROOMS = {
    "audit": "attacks on tables of their own",
    "datasets.py": "tables that are drawn",
    "planning": PUBLIC,
    "risk": PUBLIC,
    "fit": PUBLIC,  # answers of the core, no rows
    "mechanisms": PUBLIC,  # the same; the exceptions are below
    "objectives": CERTIFIED,  # the exception is below
    "privacy": PUBLIC,
    "solvers": CERTIFIED,
}
#: Of other files, and of these in spite of their room, every single one.
PRODUCTS: dict[str, dict[str, str]] = {
    "releases/exponential_choices.py": {"centre @ centre": PUBLIC},
    "releases/auc_pairs.py": {
        "np.where(y > 0, positive, negative) @ short": SUM,
        "short.T @ short": SUM,
    },
    "releases/perturbed_minimiser.py": {"row @ theta": ALONE},
    "core/row_coordinates.py": {
        "self.matrix.T @ phi": PUBLIC,
        "self.matrix @ total": SUM,
        "np.abs(matrix) @ np.abs(np.linalg.inv(matrix))": PUBLIC,
        "product @ vector": PUBLIC,
        "product.T @ (product @ vector)": PUBLIC,
        "self.directions @ (self.column_scale * self.centre)": PUBLIC,
        "np.einsum('ij,ij->j', inner, inner)": PUBLIC,
        "normal.T @ normal": PUBLIC,
        "np.abs(inner) @ np.abs(centre)": PUBLIC,
        "inner @ centre": PUBLIC,
    },
    "core/calibration.py": {"_NODE_WEIGHTS @ (1 - near * ratios)": PUBLIC},
    "core/private_rows.py": {
        "v @ scores": SUM,
        "shortened.T @ shortened": SUM,
        "vectors.T @ vectors": SUM,
    },
    "engine/sparse_moments.py": {
        "slopes @ base": PUBLIC,
        "np.abs(slopes) @ np.abs(base)": PUBLIC,
        "np.einsum('ij,ij->j', sizes, sizes)": PUBLIC,
        "np.einsum('ij,ij->j', mapped, mapped)": PUBLIC,
        "ahead @ np.vstack(rights[:level][::-1])": SUM,
    },
    "core/block_products.py": {
        "half.T @ half": SUM,
        "multiples * steps @ block": SUM,
        "multiples @ steps ** 2": SUM,
    },
    "engine/dask/rows_and_table.py": {"v @ (function(y, w) < point)": EXACT},
    "core/memory_rows.py": {
        "multiples @ block": SUM,
        "sizes @ self.row_weights.values": CERTIFIED,
        "counted[rows] @ part": EXACT,
    },
    "core/rows.py": {"slopes @ np.array(self.shift)": PUBLIC},
    "engine/sparse_rows.py": {"self.base @ self.base": PUBLIC, "mapped.T @ mapped": PUBLIC},
    "estimators/ranking.py": {"-self.coef_ @ self.released_['midpoint']": PUBLIC},
    "estimators/linear.py": {
        "jacobian.T @ np.asarray(covariance)": PUBLIC,
        "jacobian.T @ np.asarray(covariance) @ jacobian": PUBLIC,
        "X @ coef": "sparse rows and matrices of records: one after the other",
    },
    "losses/max_affine.py": {
        "directions[:len(groups)] @ direction": PUBLIC,
        "limits @ normal": PUBLIC,
        "rays[0] @ rays[1]": PUBLIC,
        "limit @ along": PUBLIC,
        "limit @ origin": PUBLIC,
    },
    "losses/vector_losses.py": {"differences @ axes[0]": PUBLIC},
    "mechanisms/dp_sgd.py": {
        "weights[visited] * slopes @ block": SUM,
        "np.tensordot(slopes, matrices, axes=2)": SUM,
    },
    "objectives/structured_objective.py": {
        "self.matrix @ theta": PUBLIC,
        "slopes @ self.matrix": PUBLIC,
        "self.matrix.T @ bends": PUBLIC,
        "self.matrix.T @ bends @ self.matrix": PUBLIC,
        "self.matrix @ shift": PUBLIC,
        "unit @ turned": ALONE,
        "turned @ unit": ALONE,
        "slopes(u, level).reshape(-1) @ rows": SUM,
        "bends @ rows.reshape(*targets.shape, self.dim)": CERTIFIED,
        "rows.T @ weighted.reshape(-1, self.dim)": CERTIFIED,
        "rows @ shift": CERTIFIED,
        "np.einsum('ij,ij->i', u, u)": CERTIFIED,
    },
    "core/convolution.py": {
        "self.kernel.pdf((grid[:-1] - knots[:i]) / h) @ jumps[:i]": PUBLIC,
        "self.kernel.pdf((grid[1:] - knots[i:]) / h) @ jumps[i:]": PUBLIC,
    },
    "smoothing/vector_convolution.py": {
        "directions.T @ bends": CERTIFIED,
        "directions.T @ bends @ directions": CERTIFIED,
        "weights @ (1.0 / factors)": PUBLIC,
        "weights @ factors": PUBLIC,
        "(slopes - shared) @ basis": PUBLIC,
        "directions @ inner.T": PUBLIC,
        "inner @ direction": PUBLIC,
        "basis @ hessian": CERTIFIED,
        "basis @ hessian @ basis.T": CERTIFIED,
    },
    "reports/effects.py": {  # points of a public grid, released coefficients
        "rows @ coef[places]": PUBLIC,
        "np.einsum('ij,jk,ik->i', rows, covariance[np.ix_(places, places)], rows)": PUBLIC,
    },
    "smoothing/moreau_envelopes.py": {
        "block @ block.T": PUBLIC,
        "self.modulus * basis.T @ basis": PUBLIC,
    },
}


def products_of(text: str) -> Iterator[str]:
    """Yield every product of matrices or vectors, as it is written."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name in CALLS:
                yield ast.unparse(node)


def found_in(root: Path) -> dict[str, set[str]]:
    """Return the products of every file."""
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {name: set(products_of(path.read_text())) for name, path in files.items()}


def test_every_product_has_a_reason():
    found = found_in(SOURCE)
    unknown = {
        name: new
        for name, products in found.items()
        if (name in PRODUCTS or name.split("/")[0] not in ROOMS)
        and (new := products - set(PRODUCTS.get(name, ())))
    }
    assert not unknown, (
        "Use core.block_products.block_margins, block_row_squares or transform_block on rows."
    )
    gone = {
        name: old
        for name, known in PRODUCTS.items()
        if (old := set(known) - found.get(name, set()))
    }
    assert not gone


def test_a_product_is_seen():
    """What the test above would catch."""
    written = {
        "slopes = loss.gradient(y, rows @ theta)": "rows @ theta",
        "z @= turn": "z @= turn",
        "lengths = np.sqrt(np.einsum('ij,ij->i', block, block))": "np.einsum('ij,ij->i', block, "
        "block)",
        "margins = block.dot(theta)": "block.dot(theta)",
        "from numpy import matmul\nmargins = matmul(block, theta)": "matmul(block, theta)",
    }
    for text, product in written.items():
        assert list(products_of(text)) == [product]
    assert not list(products_of("def f(a):\n    '''a @ b'''\n    return a * 2"))
