"""node: JSON, Buffers, zlib and worker threads; digests compared."""

import preload
from preload import HERE


class NodeTest(preload.RealProgramTest):
    def test_digests_are_the_same(self):
        node = self.need("node", "nodejs")
        expected, actual = self.run_on_both([node, HERE / "node_work.js"])
        self.assertRegex(actual.text, "^json [0-9a-f]{64}\nbuffers [0-9a-f]{64}\n"
                                      "compression [0-9a-f]{64}\nworkers [0-9a-f]{64}\n$")
        self.assertEqual(actual.text, expected.text)


if __name__ == "__main__":
    preload.main()
