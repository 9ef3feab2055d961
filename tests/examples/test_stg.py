"""The standard task graph example is one."""

from tsemu.runtime.stg import read_stg


def test_cholesky_graph_is_read(root):
    graph = read_stg(root / "examples" / "stg" / "cholesky-5x5.stg")
    assert graph.tasks == 35 + 2
    assert graph.times.sum() == 5 * 1 + 20 * 3 + 10 * 6
