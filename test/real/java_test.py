"""A JVM: compiles and runs a class with many threads, under two collectors; digests compared."""

import preload
from preload import CAIRN, HERE, SYSTEM


class JavaTest(preload.RealProgramTest):
    def test_digests_are_the_same(self):
        java = self.need("java", "default-jdk-headless")

        def run(allocator, collector):
            return self.run_program([java, "-Xmx512m", f"-XX:+Use{collector}",
                                     "-XX:MaxDirectMemorySize=64m", HERE / "JavaWork.java"],
                                    allocator).text

        expected = run(SYSTEM, "ParallelGC")
        self.assertEqual([line.split()[0] for line in expected.splitlines()],
                         ["collections", "buffers", "compression", "threads", "streams"])
        self.assertEqual(run(CAIRN, "ParallelGC"), expected)
        self.assertEqual(run(CAIRN, "G1GC"), expected)


if __name__ == "__main__":
    preload.main()
